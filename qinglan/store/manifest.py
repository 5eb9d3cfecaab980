"""Manifest of an artifact: its files with digests and sizes, made from a folder to push or read from a store."""

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from qinglan.config import explain_validation_error
from qinglan.errors import DataError
from qinglan.files.digests import tree_digest
from qinglan.files.plain_files import open_plain
from qinglan.store.backend import ObjectInfo, SourceFile, path_fault
from qinglan.store.parallel import map_in_order

MAX_SIZE = 5 << 40
"""Largest size of a file in bytes (S3's limit). Sizes are limited here, because an artifact's digest omits them."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ManifestFile(BaseModel):
    """A file's digest and size."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: Sha256
    size: int = Field(ge=0, le=MAX_SIZE)


class Manifest(BaseModel):
    """Files of an artifact. A push writes the manifest last, so an artifact without a manifest is incomplete."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: dict[str, ManifestFile] = Field(min_length=1)

    @field_validator("files")
    @classmethod
    def _stay_inside(cls, files: dict[str, ManifestFile]) -> dict[str, ManifestFile]:
        for name in files:
            if fault := path_fault(name):
                raise ValueError(f"{name!r} {fault}")
            parents = map(str, PurePosixPath(name).parents)
            if clash := next((parent for parent in parents if parent in files), None):
                raise ValueError(f"{clash!r} is a file, and a folder of {name!r}")
        return files

    @property
    def digest(self) -> str:
        return tree_digest({name: self.files[name].sha256 for name in sorted(self.files, key=str.encode)})

    def dump(self) -> bytes:
        return orjson.dumps(self.model_dump(), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)

    @classmethod
    def parse(cls, data: bytes, where: str) -> Self:
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise DataError(
                f"{where}: {explain_validation_error(error)}. Nothing it names can be trusted."
            ) from error


def differences(manifest: Manifest, stored: Mapping[str, ObjectInfo]) -> list[str]:
    """List the differences between the manifest and the stored files, one line per file."""
    lines = [f"{name} is missing" for name in manifest.files.keys() - stored.keys()]
    lines += [f"{name} belongs to nothing" for name in stored.keys() - manifest.files.keys()]
    lines += [f"{name} has other bytes" for name in files_to_push(manifest, stored) if name in stored]
    return sorted(lines)


def files_to_push(manifest: Manifest, stored: Mapping[str, ObjectInfo]) -> list[str]:
    """List the manifest's files that are missing in the store, or stored there with another digest or size."""
    return [name for name, file in manifest.files.items() if stored.get(name) != ObjectInfo(file.sha256, file.size)]


def read_sources(folder: Path) -> dict[str, SourceFile]:
    """Hash the files of a folder.

    Raises a DataError for a link, for a special file, or for a name that a store does not accept.
    """
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
    with open_plain(path) as file:
        return SourceFile(path, hashlib.file_digest(file, "sha256").hexdigest(), file.tell())
