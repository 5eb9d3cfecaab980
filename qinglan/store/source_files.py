"""The files of a folder that is to be pushed, with the digests that their bytes must have when they arrive.

Each is read once for the digest of the whole and those of its parts; what is sent afterwards goes with the latter, so
that the server refuses whatever was changed in between, and nothing is hashed twice.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from qinglan.errors import DataError
from qinglan.store.backend import MIN_PART_SIZE, SourceFile, part_size
from qinglan.store.manifest import Manifest, ManifestFile
from qinglan.store.parallel import map_in_order
from qinglan.store.paths import path_fault

READ_AT_ONCE = 1 << 20


def read_sources(folder: Path) -> dict[str, SourceFile]:
    """By their paths in a folder of plain files; a DataError for anything that could not come back as it is."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. Push the folder that a stage wrote.")
    files: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise DataError(f"{path}: a link or a special file; a store keeps plain files. Copy what it points at.")
        if fault := path_fault(name := path.relative_to(folder).as_posix()):
            raise DataError(f"{folder}: the name {path.name!r} {fault}. Rename it.")
        if path.is_file():
            files[name] = path
    if not files:
        raise DataError(f"{folder}: no files in it. Push the folder that a stage wrote.")
    return dict(zip(files, map_in_order(_read_source, files.values()), strict=True))


def build_manifest(sources: Mapping[str, SourceFile]) -> Manifest:
    return Manifest(files={name: ManifestFile(sha256=file.sha256, size=file.size) for name, file in sources.items()})


def _read_source(path: Path) -> SourceFile:
    whole, parts = hashlib.sha256(), []
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= MIN_PART_SIZE:
            return SourceFile(path, hashlib.file_digest(file, "sha256").hexdigest(), file.tell(), ())
        while _hash(file, part_size(size), whole, part := hashlib.sha256()):
            parts.append(part.hexdigest())
        return SourceFile(path, whole.hexdigest(), file.tell(), tuple(parts))


def _hash(file: BinaryIO, size: int, *hashes: "hashlib._Hash") -> int:
    """So many bytes, or what is left of them; how many there were."""
    left = size
    while left and (chunk := file.read(min(READ_AT_ONCE, left))):
        left -= len(chunk)
        for each in hashes:
            each.update(chunk)
    return size - left
