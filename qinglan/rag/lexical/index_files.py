"""Writes and checks the files of a search index. The manifest is written last, so a folder with a manifest is
complete."""

import os
from pathlib import Path

import orjson
from pydantic import ValidationError

from qinglan.config import Config, Name
from qinglan.errors import DataError
from qinglan.files.files import sha256_file

FORMAT = 3
MANIFEST = "manifest.json"
PASSAGES = "passages.jsonl"
OFFSETS = "offsets.u64"
WEIGHTS = "weights.f64"
SEARCH = "search"


class IndexFile(Config):
    """Size and digest of one file of an index."""

    bytes: int
    sha256: str


class Manifest(Config):
    """The content of an index folder, and the knowledge base it was built from."""

    format: int
    tenant_id: Name
    kb_name: Name
    snapshot: str
    passages: int
    files: dict[str, IndexFile]


def verify_index(folder: Path) -> Manifest:
    """Check every file of an index against its manifest; a DataError says how to rebuild a damaged index."""
    manifest = _read_manifest(folder)
    for name, expected in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise damaged_index(folder, f"{name} is missing")
        if path.stat().st_size != expected.bytes:
            raise damaged_index(folder, f"{name} has {path.stat().st_size} bytes instead of {expected.bytes}")
        if sha256_file(path) != expected.sha256:
            raise damaged_index(folder, f"{name} was altered")
    return manifest


def seal_index(folder: Path, manifest: Manifest) -> None:
    """Write the manifest with the digest of every file. It is written last, so a folder with a manifest is
    complete."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".lock":  # tantivy creates its lock files again
            path.chmod(0o644)  # tantivy's files are readable by the builder only, and the server may be another user
            files[str(path.relative_to(folder))] = IndexFile(bytes=path.stat().st_size, sha256=sha256_file(path))
            _sync(path)
    sealed = manifest.model_copy(update={"files": files})
    (folder / MANIFEST).write_bytes(orjson.dumps(sealed.model_dump(), option=orjson.OPT_INDENT_2))
    _sync(folder / MANIFEST)


def _read_manifest(folder: Path) -> Manifest:
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise damaged_index(folder, f"{MANIFEST} is missing") from error
    except ValidationError as error:
        raise damaged_index(folder, f"{MANIFEST} is not one of ours") from error
    if manifest.format != FORMAT:
        raise damaged_index(folder, f"it has format {manifest.format} and this version reads {FORMAT}")
    return manifest


def damaged_index(folder: Path, what: str) -> DataError:
    return DataError(
        f"{folder}: this search index cannot be used: {what}. "
        "Delete the folder and build it again: the RAG service does so when it starts."
    )


def _sync(path: Path) -> None:
    # Without fsync the rename could be on the disk before the bytes are, after a power cut.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
