"""The files of an artifact, with their digests: what its own digest is the digest of."""

from collections.abc import Mapping
from typing import Annotated, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from qinglan.config import explain_validation_error
from qinglan.digests import tree_digest
from qinglan.errors import DataError
from qinglan.store.backend import ObjectInfo
from qinglan.store.paths import path_fault

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ManifestFile(BaseModel):
    """One file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: Sha256
    size: int = Field(ge=0)


class Manifest(BaseModel):
    """Written last: an artifact without one was never wholly pushed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: dict[str, ManifestFile] = Field(min_length=1)

    @field_validator("files")
    @classmethod
    def _stay_inside(cls, files: dict[str, ManifestFile]) -> dict[str, ManifestFile]:
        for name in files:
            if fault := path_fault(name):
                raise ValueError(f"{name!r} {fault}")
            if clash := next((parent for parent in _parents(name) if parent in files), None):
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


def differences(manifest: Manifest, found: Mapping[str, ObjectInfo]) -> list[str]:
    """What is stored otherwise than the manifest says, one line a file."""
    lines = [f"{name} is missing" for name in manifest.files.keys() - found.keys()]
    lines += [f"{name} belongs to nothing" for name in found.keys() - manifest.files.keys()]
    lines += [f"{name} has other bytes" for name in files_to_push(manifest, found) if name in found]
    return sorted(lines)


def files_to_push(manifest: Manifest, found: Mapping[str, ObjectInfo]) -> list[str]:
    """The files that are not stored as the manifest says."""
    return [name for name, file in manifest.files.items() if found.get(name) != ObjectInfo(file.sha256, file.size)]


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]
