"""Where bytes lie by key: all that a store needs of a folder or of S3."""

import hashlib
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from qinglan.errors import DataError
from qinglan.progress import Transfer

PART = 16 << 20
"""Of a large file as it is sent or fetched; what is smaller goes in one piece."""


class Content(NamedTuple):
    """What a stored file is said to hold."""

    sha256: str
    size: int


class Shelf(Protocol):
    """A key that leads out of the shelf is refused by each of these with a DataError."""

    @property
    def address(self) -> str: ...

    def prepare(self) -> None:
        """Make the shelf where there is none yet: somebody is about to write."""

    def read(self, key: str) -> bytes | None:
        """All of a small object; None where there is none."""

    def part(self, key: str, start: int, size: int) -> bytes:
        """An object's bytes from a place on, fewer where it ends; a DataError where there is no object."""

    def create(self, key: str, data: bytes) -> bool:
        """Write a small object that nobody can write again; False, and nothing written, where one is there."""

    def put(self, key: str, source: Path, sha256: str, tally: Transfer) -> None:
        """Write a file; a DataError if its bytes, as they were written, are not those of the digest."""

    def children(self, prefix: str) -> list[str]:
        """The names directly under a prefix that ends with a slash."""

    def found(self, prefix: str) -> dict[str, Content]:
        """Every file under a prefix that ends with a slash, by the rest of its key."""


class Hashed:
    """A file whose digest is known once it has been read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._sha256.update(data)
        return data

    def must_be(self, sha256: str, source: Path) -> None:
        if self._sha256.hexdigest() != sha256:
            raise changed(source)


def changed(source: Path) -> DataError:
    return DataError(f"{source}: changed while it was being pushed. Push again once nothing writes to it.")
