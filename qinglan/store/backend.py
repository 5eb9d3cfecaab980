"""The interface between a store and its storage, which is a folder or an S3 bucket, and the rules for keys."""

from pathlib import Path
from typing import NamedTuple, Protocol

from qinglan.errors import DataError
from qinglan.terminal.progress import Transfer

MIN_PART_SIZE = 16 << 20
"""Smallest part of a large upload, in bytes; a smaller file is sent in one piece."""

MAX_PARTS = 10_000
"""S3's limit on the parts of an upload: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html"""

MAX_PART_LENGTH = 255
MAX_PATH_LENGTH = 800
MAX_KEY_LENGTH = 1024
"""Longest key in S3, in bytes."""


class ObjectInfo(NamedTuple):
    """Recorded digest and size of a stored file."""

    sha256: str
    size: int


class SourceFile(NamedTuple):
    """A file to push, with its digest and size from when it was hashed."""

    path: Path
    sha256: str
    size: int


class StorageBackend(Protocol):
    """A folder or a bucket. A key that leads out of it raises a DataError."""

    @property
    def address(self) -> str: ...

    def prepare(self) -> None:
        """Create the storage if it does not exist. Called before the first write."""

    def read(self, key: str) -> bytes | None:
        """Read a small object; None if it does not exist."""

    def part(self, key: str, start: int, size: int) -> bytes:
        """Read up to `size` bytes of an object, beginning at byte `start`.

        Returns fewer bytes at the object's end. Raises a DataError if the object does not exist.
        """

    def create(self, key: str, data: bytes) -> bool:
        """Write a small object if its key does not exist. Returns False, and writes nothing, if the key exists."""

    def put(self, key: str, source: SourceFile, tally: Transfer) -> None:
        """Write a file. Raises a DataError if the file has changed since it was hashed."""

    def children(self, prefix: str, beginning: str = "") -> list[str]:
        """List the names directly under a prefix (with a final slash) that start with `beginning`."""

    def objects(self, prefix: str) -> dict[str, ObjectInfo]:
        """Return digest and size of each file under a prefix (with a final slash), by its key without the prefix."""


def source_changed_error(source: SourceFile) -> DataError:
    return DataError(f"{source.path}: changed while it was being pushed. Push again once nothing writes to it.")


def part_size(size: int) -> int:
    return max(MIN_PART_SIZE, -(-size // MAX_PARTS))


def path_fault(name: str, longest: int = MAX_PATH_LENGTH) -> str | None:
    """Return why a path is refused, such as a part `..` or a control character; None if it is accepted."""
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
    """Return a key, or a prefix with a final slash, unchanged. Raises a DataError if a store does not accept it."""
    if fault := path_fault(key.removesuffix("/"), MAX_KEY_LENGTH):
        raise DataError(f"{key!r} {fault}: no key of a store.")
    return key
