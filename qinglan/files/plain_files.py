"""Reads files and folders that a stranger may have filled: links, devices and odd names in a folder are faults.

found = plain_files(folder)
found.files["sub/config.json"], found.faults["Config.json"]

content = read_plain(path)      # never waits: a pipe without a writer would hang a reader for ever
with open_lock(path) as lock: fcntl.flock(lock, fcntl.LOCK_EX)
"""

import errno
import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NamedTuple

from qinglan.errors import ConfigError, DataError, QinglanError
from qinglan.terminal import visible

MAX_DOCUMENT = 1 << 30
"""Size limit in bytes for a file that is read into memory. The largest such file in practice, a list of paid answers,
has a few hundred bytes per call."""


class UnreadableFileError(DataError, OSError):
    """No plain file can be read at a path. It is a DataError and an OSError, so that handlers of either class catch
    it."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{visible(str(path))}: {why}. A plain file belongs there.")
        self.strerror = why


class UnwritableFileError(ConfigError, OSError):
    """A path cannot be written, because of a full disk, a quota or missing permission."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{visible(path)}: {why}. Choose another place, or make room.")
        self.strerror = why


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NOT_ALLOWED = (errno.EROFS, errno.EACCES, errno.EPERM)
NO_ROOM_WORDS = re.compile(
    r"\(os\serror\s(27|28|122)\)"  # Rust: EFBIG, ENOSPC, EDQUOT
    r"|disk\sis\sfull"  # SQLite
    r"|\d+\srequested\sand\s\d+\swritten"  # numpy's tofile
    r"|unexpected\spos\s\d+\svs\s\d+"  # torch.save: its zip file is shorter than what it wrote
)
"""Words with which libraries report a full disk in errors that have no errno."""


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn an error of the block into an UnwritableFileError if room or permission is missing."""
    try:
        yield
    except QinglanError:
        raise
    except Exception as error:
        if unwritable := unwritable_file(error, target):
            raise unwritable from error
        raise


def unwritable_file(error: Exception, target: Path | str) -> UnwritableFileError | None:
    """Turn an error into an UnwritableFileError if it means missing room or permission; None for other errors."""
    number = (error.errno or 0) if isinstance(error, OSError) else 0
    if number in NO_ROOM:  # error.filename may be the source, which shutil.copyfile names first
        return UnwritableFileError(str(target), os.strerror(number))
    if number in NOT_ALLOWED and isinstance(error, OSError) and error.filename:
        return UnwritableFileError(os.fsdecode(error.filename), os.strerror(number))
    if not number and NO_ROOM_WORDS.search(str(error)):
        return UnwritableFileError(str(target), os.strerror(errno.ENOSPC))
    return None


def open_plain(path: Path) -> BufferedReader:
    """Open a plain file to read it; pipes, devices and sockets are refused at once."""
    return os.fdopen(plain_handle(path, os.O_RDONLY), "rb")


def plain_handle(path: Path, flags: int, mode: int = 0o644) -> int:
    """Open a plain file and return its descriptor; pipes, devices and sockets are refused at once.

    The flag O_NONBLOCK is needed, since opening a pipe would wait for its other end. A plain file ignores the flag.
    """
    try:
        handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ELOOP):  # a socket, a pipe or a device without hardware; a link
            raise UnreadableFileError(path, str(error.strerror)) from error
        raise
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return handle
    os.close(handle)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise UnreadableFileError(path, "a device, pipe or socket, and no file")


def own_handle(path: Path, flags: int, mode: int = 0o644) -> int:
    """Open a plain file for writing like `plain_handle`, but refuse links. Through a symbolic link another file would
    be written, and with a hard link the file could be changed under its other name."""
    try:
        handle = plain_handle(path, flags | os.O_NOFOLLOW, mode)
    except IsADirectoryError as error:
        raise UnreadableFileError(path, "a folder") from error
    if os.fstat(handle).st_nlink > 1:
        os.close(handle)
        raise UnreadableFileError(path, "a hard link: the same file has another name elsewhere")
    return handle


def open_lock(path: Path) -> BinaryIO:
    """Open a file to lock it (fcntl.flock); it is created if missing."""
    return os.fdopen(own_handle(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "ab")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an OSError of the block, for example from a broken disk, into an UnreadableFileError."""
    try:
        yield
    except OSError as error:
        raise UnreadableFileError(path, str(error.strerror)) from error


def read_plain(path: Path) -> bytes:
    """Read the whole content of a plain file; an UnreadableFileError if it is larger than MAX_DOCUMENT."""
    with open_plain(path) as file, reading(path):
        content = file.read(MAX_DOCUMENT + 1)
    if len(content) > MAX_DOCUMENT:
        raise UnreadableFileError(path, f"more than {MAX_DOCUMENT >> 20} MiB")
    return content


class Listing(NamedTuple):
    files: dict[str, Path]
    """Plain files by their path in the folder, with forward slashes."""

    faults: dict[str, str]
    """Reason why an entry is not allowed, by its path in the folder."""


def plain_files(folder: Path) -> Listing:
    """List the plain files of a folder, at any depth, and all faults. No link is followed and no file is opened."""
    listing = Listing({}, {})
    try:
        _walk(folder, "", listing)
    except OSError as error:
        listing.faults[visible(Path(error.filename or folder).name)] = f"cannot be read ({error.strerror})"
    return listing


def _walk(folder: Path, prefix: str, listing: Listing) -> None:
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    if not entries:
        listing.faults[prefix.rstrip("/") or "."] = "an empty folder"
    # Names that differ in case or Unicode form are one file on macOS and Windows, and two on Linux.
    alike = Counter(_alike(entry.name) for entry in entries)
    for entry in entries:
        name = prefix + visible(entry.name)
        mode = entry.stat(follow_symlinks=False).st_mode
        for fault in _faults(entry.name, mode, alike):
            listing.faults.setdefault(name, fault)
        if stat.S_ISDIR(mode):
            _walk(Path(entry.path), f"{name}/", listing)
        elif stat.S_ISREG(mode):
            listing.files[name] = Path(entry.path)


def _faults(name: str, mode: int, alike: Counter[str]) -> Iterator[str]:
    if stat.S_ISLNK(mode):
        yield "a symbolic link: its bytes are elsewhere and can change"
    elif not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        yield "no file: a device, pipe or socket"
    if name.startswith("."):
        yield "hidden"
    if not name.isprintable() or "\\" in name:
        yield "its name has characters that cannot be shown or lead elsewhere"
    if alike[_alike(name)] > 1:
        yield "another name differs from it in case or Unicode form alone"


def _alike(name: str) -> str:
    """Normalize a name. Two names become equal if some file systems treat them as the same name."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
