"""Digests of files and folders, which anyone can check with sha256sum and openssl."""

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from qinglan.files.files import sha256_file

FILE_ALGORITHM, FOLDER_ALGORITHM = "sha256", "sha3_256"
"""The algorithms for a file and for a folder, by their keys in in-toto's DigestSet."""

THREADS = min(4, os.cpu_count() or 1)
SMALL_BYTES = 1 << 22
"""Bytes of a folder below which it is hashed in one thread: others would start too late."""


def digest(path: Path) -> str:
    """SHA-256 of a file; of a folder, `find -type f | LC_ALL=C sort | xargs sha256sum | openssl sha3-256`.

    Folders have another algorithm than files: else a file with the listing in it could pass for the folder.
    """
    return sha256_file(path) if path.is_file() else tree_digest(file_digests(path))


def algorithm_of(path: Path) -> str:
    """The key that a digest of this file or folder goes by."""
    return FILE_ALGORITHM if path.is_file() else FOLDER_ALGORITHM


def file_digests(folder: Path) -> dict[str, str]:
    """Each file's digest by its path in the folder, with forward slashes; several files are hashed at once."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    names = sorted(paths, key=os.fsencode)
    if sum(path.stat().st_size for path in paths.values()) < SMALL_BYTES:
        return {name: sha256_file(paths[name]) for name in names}
    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(names, pool.map(lambda name: sha256_file(paths[name]), names), strict=True))


def tree_digest(files: Mapping[str, str]) -> str:
    """The digest of a folder with these files."""
    return hashlib.sha3_256(b"".join(_line(os.fsencode(name), sha) for name, sha in files.items())).hexdigest()


def _line(name: bytes, sha: str) -> bytes:
    """A line as sha256sum prints it; a line break in a name is escaped, so that it cannot pass for two lines."""
    safe = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    return (b"\\" if safe != name else b"") + sha.encode() + b"  " + safe + b"\n"
