"""Read a log that another process writes, line by line as it grows."""

import re
from pathlib import Path

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Colour codes of a terminal, which Ray writes around the names of its processes."""


class LineFollower:
    """Function object that returns the lines that were completed since its last call."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def __call__(self) -> list[bytes]:
        lines = complete_lines(self._path, self._read)
        self._read += sum(map(len, lines))
        return lines


def complete_lines(path: Path, start: int = 0) -> list[bytes]:
    """Return the lines of a file from byte `start` on, without an unfinished last line; empty if the file is
    missing."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            return [line for line in file.readlines() if line.endswith(b"\n")]
    except FileNotFoundError:
        return []


def log_tail(path: Path, lines: int, longest: int) -> list[str]:
    """Return the last lines of a log, each cut to `longest` characters; an empty list if the file is missing.

    If a progress bar rewrote a line, only its newest state is returned.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - lines * longest))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    ended = [line.rstrip("\r").rpartition("\r")[2] for line in COLOURS.sub("", text).split("\n")]
    return [line[:longest] for line in ended if line.strip()][-lines:]
