"""Write the bill of materials: CycloneDX 1.6 with a model card. It is validated strictly before it is written.

cyclonedx-python-lib does not support model cards and drops them, so the card is added to its JSON.
https://cyclonedx.org/docs/1.6/json/#components_items_modelCard
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from components.release.register.config import RegisterConfig
from qinglan.errors import ConfigError
from qinglan.files.digests import FILE_ALGORITHM, FOLDER_ALGORITHM
from qinglan.lineage.release.bom import CYCLONEDX_HASHES, MODEL_FILE_PREFIX, schema_fault
from qinglan.lineage.signing.signed_statement import SignedStatement
from qinglan.lineage.signing.statement import ArtifactRef

SPACE = uuid.UUID("5b0f5d0e-7a2f-5c39-9c0a-3f1f0a1f6c11")
"""Namespace of serial numbers, so that the same model always has the same number."""


class BomContents(NamedTuple):
    model: str
    """Digest of the model's folder."""

    files: Mapping[str, str]
    """Digests of the model's files, by their paths in the release."""

    statements: Sequence[SignedStatement]
    surroundings: Sequence[ArtifactRef]
    at: datetime


def write_bom(contents: BomContents, card: Mapping[str, Any], config: RegisterConfig) -> str:
    """Return the bill of materials as text; a ConfigError if a setting makes it invalid."""
    from cyclonedx.output.json import JsonV1Dot6

    body = json.loads(JsonV1Dot6(_bom(contents, config)).output_as_string())
    body["metadata"]["component"]["modelCard"] = card
    text = json.dumps(body, ensure_ascii=False, indent=1)
    if why := schema_fault(text):
        raise ConfigError(f"register: no bill of materials can be made ({why}). Look at licence, base and limits.")
    return text


def _bom(contents: BomContents, config: RegisterConfig) -> Any:
    from cyclonedx.model.bom import Bom, BomMetaData

    model = _model(contents, config)
    files = [_file(name, digest) for name, digest in contents.files.items()]
    files += [_file(part.name, part.digest) for part in contents.surroundings if part.is_bytes]
    bom = Bom(
        serial_number=uuid.uuid5(SPACE, contents.model), components=files,
        metadata=BomMetaData(component=model, timestamp=contents.at),
    )  # fmt: skip
    bom.register_dependency(model, files)
    return bom


def _model(contents: BomContents, config: RegisterConfig) -> Any:
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component, ComponentType, Pedigree

    return Component(
        name=config.name, type=ComponentType.MACHINE_LEARNING_MODEL, version=contents.model[:12], bom_ref="model",
        hashes=[_hash(contents.model, FOLDER_ALGORITHM)], licenses=[_licence(config)],
        pedigree=Pedigree(ancestors=[_base(contents, config)]),
        properties=[Property(name=name, value=value) for name, value in stages(contents)],
    )  # fmt: skip


def stages(contents: BomContents) -> Iterator[tuple[str, str]]:
    """Yield properties: each earlier stage with the digest of its statement, and the code's commit."""
    for entry in contents.statements:
        yield f"qinglan:stage:{entry.statement.stage}", f"{entry.statement.ended} {entry.digest}"
    for part in contents.surroundings:
        if not part.is_bytes:
            yield f"qinglan:{part.name}", f"{part.algorithm}:{part.digest}"


def _base(contents: BomContents, config: RegisterConfig) -> Any:
    """Return the base model, with its digest from the statements."""
    from cyclonedx.model.component import Component, ComponentType

    bases = [part for entry in contents.statements for part in entry.statement.made if part.name == "base_model"]
    hashes = [_hash(part.digest, part.algorithm) for part in bases[-1:] if part.algorithm in CYCLONEDX_HASHES]
    return Component(
        name=config.base or "base model", type=ComponentType.MACHINE_LEARNING_MODEL, bom_ref="base",
        hashes=hashes, licenses=[_licence(config)],
    )  # fmt: skip


def _file(name: str, digest: str) -> Any:
    from cyclonedx.model.component import Component, ComponentType

    kind = ComponentType.FILE if name.startswith(MODEL_FILE_PREFIX) else ComponentType.PLATFORM
    return Component(name=name, type=kind, bom_ref=f"{name}@{digest[:12]}", hashes=[_hash(digest, FILE_ALGORITHM)])


def _licence(config: RegisterConfig) -> Any:
    from cyclonedx.exception.model import CycloneDxModelException
    from cyclonedx.model.license import DisjunctiveLicense
    from cyclonedx.spdx import is_supported_id

    try:
        if not is_supported_id(config.licence):
            raise ValueError(config.licence)
        return DisjunctiveLicense(id=config.licence)
    except (ValueError, CycloneDxModelException) as error:
        raise ConfigError(
            f"register.licence: {config.licence!r} is no SPDX id. Take one of https://spdx.org/licenses, such as "
            "Apache-2.0."
        ) from error


def _hash(digest: str, algorithm: str) -> Any:
    from cyclonedx.model import HashAlgorithm, HashType

    return HashType(alg=HashAlgorithm(CYCLONEDX_HASHES[algorithm]), content=digest)
