"""The plain files of a folder that someone else may have filled: whatever is more than that is named.

found = plain_files(folder)
found.files["sub/config.json"], found.faults["Config.json"]
"""

import os
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from qinglan.terminal import visible


class Listing(NamedTuple):
    files: dict[str, Path]
    """By path in the folder, with forward slashes."""

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
        yield "a symbolic link: its bytes are elsewhere, and can be others tomorrow"
    elif not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        yield "no file: a device, pipe or socket"
    if name.startswith("."):
        yield "hidden"
    if not name.isprintable() or "\\" in name:
        yield "its name has characters that cannot be shown or lead elsewhere"
    if alike[_alike(name)] > 1:
        yield "another name differs from it in case or Unicode form alone"


def _alike(name: str) -> str:
    """What some file systems make of the name."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
