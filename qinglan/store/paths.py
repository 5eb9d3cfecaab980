"""What may be a path in an artifact, and a key on a shelf: nothing that leads elsewhere."""

from qinglan.errors import DataError

LONGEST_PART = 255
LONGEST_PATH = 800
LONGEST_KEY = 1024
"""Bytes; S3 ends a key there."""


def path_fault(name: str, longest: int = LONGEST_PATH) -> str | None:
    """Why a path is refused: what leads elsewhere, or would make two lists of files look alike."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "leads out of its folder or says the same twice"
    if "\\" in name or any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
        return "has a backslash or a control character"
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return "is not UTF-8"
    if max(sizes) > LONGEST_PART or len(name.encode()) > longest:
        return f"is longer than {LONGEST_PART} bytes in a part or {longest} in all"
    return None


def checked_key(key: str) -> str:
    """A key, or a prefix that ends with a slash. What makes them checks its own parts; this is the wall behind it."""
    if fault := path_fault(key.removesuffix("/"), LONGEST_KEY):
        raise DataError(f"{key!r} {fault}: no key of a store.")
    return key
