"""Storage by key: the requests of a store to a folder or to S3, and the keys that it may use."""

from pathlib import Path
from typing import NamedTuple, Protocol

from qinglan.errors import DataError
from qinglan.terminal.progress import Transfer

MIN_PART_SIZE = 16 << 20
"""Bytes of a part of a large file as it is sent or fetched; a smaller file goes in one piece."""

MAX_PARTS = 10_000
"""S3's limit."""

MAX_PART_LENGTH = 255
MAX_PATH_LENGTH = 800
MAX_KEY_LENGTH = 1024
"""Bytes; S3 ends a key there."""


class ObjectInfo(NamedTuple):
    """The recorded content of a stored file."""

    sha256: str
    size: int


class SourceFile(NamedTuple):
    """A file to push, with its content when its digests were taken."""

    path: Path
    sha256: str
    size: int
    parts: tuple[str, ...]
    """The digests of the parts in which it goes; empty where it goes in one piece."""


class StorageBackend(Protocol):
    """Each method refuses a key that leads out of the storage, with a DataError."""

    @property
    def address(self) -> str: ...

    def prepare(self) -> None:
        """Make the storage where there is none yet: somebody is about to write."""

    def read(self, key: str) -> bytes | None:
        """All of a small object; None where there is none."""

    def part(self, key: str, start: int, size: int) -> bytes:
        """An object's bytes from an offset on, fewer where it ends; a DataError where there is no object."""

    def create(self, key: str, data: bytes) -> bool:
        """Write a small object that nobody can write again; False, and nothing written, where one is there."""

    def put(self, key: str, source: SourceFile, tally: Transfer) -> None:
        """Write a file; a DataError if its bytes, as they are written, are not those that the digests are of."""

    def children(self, prefix: str, beginning: str = "") -> list[str]:
        """The names directly under a prefix that ends with a slash; those with this beginning, where it is given."""

    def objects(self, prefix: str) -> dict[str, ObjectInfo]:
        """Every file under a prefix that ends with a slash, by the rest of its key."""


def source_changed_error(source: SourceFile) -> DataError:
    return DataError(f"{source.path}: changed while it was being pushed. Push again once nothing writes to it.")


def part_size(size: int) -> int:
    """Depends on the file's size alone, so that what another push has sent fits."""
    return max(MIN_PART_SIZE, -(-size // MAX_PARTS))


def path_fault(name: str, longest: int = MAX_PATH_LENGTH) -> str | None:
    """The reason to refuse a path that leads elsewhere, or would make two lists of files look alike."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "leads out of its folder or says the same twice"
    if "\\" in name or any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
        return "has a backslash or a control character"
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return "is not UTF-8"
    if max(sizes) > MAX_PART_LENGTH or len(name.encode()) > longest:
        return f"is longer than {MAX_PART_LENGTH} bytes in a part or {longest} in all"
    return None


def checked_key(key: str) -> str:
    """A key, or a prefix that ends with a slash. Whoever makes a key checks its parts; this is the second check."""
    if fault := path_fault(key.removesuffix("/"), MAX_KEY_LENGTH):
        raise DataError(f"{key!r} {fault}: no key of a store.")
    return key
