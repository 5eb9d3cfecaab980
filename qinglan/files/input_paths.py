"""Explains why a path that a person named as an input cannot be read: it is an address, a folder, or missing.

if fault := path_fault(path, "Give the spreadsheet of questions."):
    raise DataError(fault)
"""

import re
from pathlib import Path

from qinglan.http.addresses import HIDDEN

WEB_PATH = re.compile(r"([a-z][a-z0-9+.-]{1,20}):/+", re.IGNORECASE)
"""Pattern for a web address that was given as a path. Python's Path keeps only one slash: https:/example.com."""


def path_fault(path: Path, next_step: str, folder: bool = False) -> str:
    """Return a message if a path is no file (with `folder`, no file and no folder); empty if it is one.

    If nothing is at the path, the message ends with `next_step`. Parts of an address that could hold a key are
    hidden.
    """
    try:
        if path.is_file() or (folder and path.is_dir()):
            return ""
        if match := WEB_PATH.match(str(path)):
            shown = HIDDEN.sub("...", f"{match[1]}://{str(path)[match.end() :]}")
            return f"{shown}: this is an address, and no file is fetched. Download it, and name the copy."
        if path.is_dir():
            return f"{path}: is a folder. Name the file in it."
        if path.exists():
            return f"{path}: is a device or a pipe, and is not read. Write it to a file, and name that."
    except OSError as error:  # a name that is too long, a folder that may not be entered
        return f"{path}: {error.strerror}. {next_step}"
    return f"{path}: no such {'file or folder' if folder else 'file'}. {next_step}"
