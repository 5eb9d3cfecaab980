"""Where bytes lie by key: all that a store needs of a folder or of S3."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from qinglan.errors import DataError

CHUNK = 1 << 20


class Content(NamedTuple):
    """What a stored file is said to hold."""

    sha256: str
    size: int


class Shelf(Protocol):
    """Keys are checked before they come here: they never lead out of the shelf."""

    @property
    def address(self) -> str: ...

    def read(self, key: str) -> bytes | None:
        """All of a small object; None where there is none."""

    def chunks(self, key: str) -> Iterator[bytes]:
        """An object's bytes; a DataError where there is none."""

    def create(self, key: str, data: bytes) -> bool:
        """Write a small object that nobody can write again; False, and nothing written, where one is there."""

    def put(self, key: str, source: Path, sha256: str) -> None:
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

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._sha256.update(data)
        return data

    def must_be(self, sha256: str, source: Path) -> None:
        if self._sha256.hexdigest() != sha256:
            raise DataError(f"{source}: changed while it was being pushed. Push again once nothing writes to it.")
