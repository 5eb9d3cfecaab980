"""What a file or a folder is called by its content, so that anyone can check it with sha256sum and openssl."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from qinglan.files import sha256_file

FILE_ALGORITHM, FOLDER_ALGORITHM = "sha256", "sha3_256"
"""The functions by which a file and a folder are named, by their keys in in-toto's DigestSet."""


def digest(path: Path) -> str:
    """Of a file's bytes; of a folder, what `find -type f | LC_ALL=C sort | xargs sha256sum | openssl sha3-256` says.

    Another function for folders than for files: else a file with the listing in it could pass for the folder.
    """
    return sha256_file(path) if path.is_file() else tree_digest(file_digests(path))


def algorithm_of(path: Path) -> str:
    """The key that a digest of this file or folder goes by."""
    return FILE_ALGORITHM if path.is_file() else FOLDER_ALGORITHM


def file_digests(folder: Path) -> dict[str, str]:
    """Each file's digest by its path in the folder, with forward slashes."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: sha256_file(found[name]) for name in sorted(found, key=os.fsencode)}


def tree_digest(files: Mapping[str, str]) -> str:
    """Of a folder with these files."""
    return hashlib.sha3_256(b"".join(_line(os.fsencode(name), sha) for name, sha in files.items())).hexdigest()


def _line(name: bytes, sha: str) -> bytes:
    """As sha256sum prints it: a name with a line's end in it is written so that it cannot pass for two lines."""
    safe = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    return (b"\\" if safe != name else b"") + sha.encode() + b"  " + safe + b"\n"
