"""Where bytes lie by key: all that a store needs of a folder or of S3."""

from pathlib import Path
from typing import NamedTuple, Protocol

from qinglan.errors import DataError
from qinglan.terminal.progress import Transfer

MIN_PART_SIZE = 16 << 20
"""Of a large file as it is sent or fetched; what is smaller goes in one piece."""

MAX_PARTS = 10_000
"""As S3 has it."""


class ObjectInfo(NamedTuple):
    """What a stored file is said to hold."""

    sha256: str
    size: int


class SourceFile(NamedTuple):
    """A file to push, and what it held when its digests were taken."""

    path: Path
    sha256: str
    size: int
    parts: tuple[str, ...]
    """The digest of each part in which it goes; none where it goes in one piece."""


class StorageBackend(Protocol):
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

    def put(self, key: str, source: SourceFile, tally: Transfer) -> None:
        """Write a file; a DataError if its bytes, as they are written, are not those that the digests are of."""

    def children(self, prefix: str, beginning: str = "") -> list[str]:
        """The names directly under a prefix that ends with a slash; those with this beginning, where it is given."""

    def found(self, prefix: str) -> dict[str, ObjectInfo]:
        """Every file under a prefix that ends with a slash, by the rest of its key."""


def source_changed_error(source: SourceFile) -> DataError:
    return DataError(f"{source.path}: changed while it was being pushed. Push again once nothing writes to it.")


def part_size(size: int) -> int:
    """Depends on the file's size alone, so that what another push has sent fits."""
    return max(MIN_PART_SIZE, -(-size // MAX_PARTS))
