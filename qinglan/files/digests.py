"""Digests of files and folders, which anyone can check with sha256sum and openssl."""

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from qinglan.files.files import sha256_file

FILE_ALGORITHM, FOLDER_ALGORITHM = "sha256", "sha3_256"
"""Algorithms for the digest of a file and of a folder, named as in in-toto's DigestSet."""

THREADS = min(4, os.cpu_count() or 1)
SMALL_BYTES = 1 << 22
"""Folder size in bytes below which one thread hashes all files, because starting more threads would take longer."""


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, or the digest of a folder, as this command prints it:

        find -type f | LC_ALL=C sort | xargs sha256sum | openssl sha3-256

    Folders have another algorithm than files. Else a file with the output of `sha256sum` could pass for its folder.
    """
    return sha256_file(path) if path.is_file() else tree_digest(file_digests(path))


def algorithm_of(path: Path) -> str:
    return FILE_ALGORITHM if path.is_file() else FOLDER_ALGORITHM


def file_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file by its path in the folder, with forward slashes, sorted by path."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    names = sorted(paths, key=os.fsencode)
    if sum(path.stat().st_size for path in paths.values()) < SMALL_BYTES:
        return {name: sha256_file(paths[name]) for name in names}
    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(names, pool.map(lambda name: sha256_file(paths[name]), names), strict=True))


def tree_digest(files: Mapping[str, str]) -> str:
    """Compute the digest of a folder from the digests of its files, in the order that `file_digests` returns."""
    return hashlib.sha3_256(b"".join(_line(os.fsencode(name), sha) for name, sha in files.items())).hexdigest()


def _line(name: bytes, sha: str) -> bytes:
    """Return the line that `sha256sum` prints for a file. A line break in a name is escaped, so that it cannot pass
    for two lines."""
    safe = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    return (b"\\" if safe != name else b"") + sha.encode() + b"  " + safe + b"\n"
