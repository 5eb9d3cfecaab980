"""The plain files of a folder that someone else may have filled: whatever is more than that is named.

found = plain_files(folder)
found.files["sub/config.json"], found.faults["Config.json"]

content = read_plain(path)      # never waits: a pipe that nobody writes to would hang a reader for ever
"""

import errno
import os
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from qinglan.errors import DataError
from qinglan.terminal import visible

MAX_DOCUMENT = 1 << 30
"""Bytes of a file that is read whole; the largest, a list of paid answers, has some hundred bytes a call."""


class UnreadableFileError(DataError, OSError):
    """A path where no plain file can be read; both an error of data and one of the system, for their handlers."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{visible(str(path))}: {why}. A plain file belongs there.")
        self.strerror = why


def open_plain(path: Path) -> BufferedReader:
    """Open a plain file to read it; pipes, devices and sockets are refused at once."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ELOOP):  # a socket or a device without hardware; links in a circle
            raise UnreadableFileError(path, str(error.strerror)) from error
        raise
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise UnreadableFileError(path, "a device, pipe or socket, and no file")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """An UnreadableFileError where a read fails, as of a broken disk or of a process's memory."""
    try:
        yield
    except OSError as error:
        raise UnreadableFileError(path, str(error.strerror)) from error


def read_plain(path: Path) -> bytes:
    """The whole content of a plain file."""
    with open_plain(path) as file, reading(path):
        content = file.read(MAX_DOCUMENT + 1)
    if len(content) > MAX_DOCUMENT:
        raise UnreadableFileError(path, f"more than {MAX_DOCUMENT >> 20} MiB")
    return content


class Listing(NamedTuple):
    files: dict[str, Path]
    """The files by their path in the folder, with forward slashes."""

    faults: dict[str, str]
    """Forbidden files by path, each with the reason."""


def plain_files(folder: Path) -> Listing:
    """No link is followed and no file is opened."""
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
    """The name in the one form that some file systems keep of it."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
