"""The statement of a step: an in-toto Statement v1 with SLSA provenance v1.

Artifacts are named by digest. A statement holds no personal data, and no local path, since a path may name a person.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from qinglan.documents import parse_json_mapping
from qinglan.errors import DataError
from qinglan.files.digests import FILE_ALGORITHM, FOLDER_ALGORITHM

# https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
# https://slsa.dev/spec/v1.0/provenance
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
STAGE_BUILD_TYPE = "urn:qinglan:stage:v2"
"""SLSA's buildType, which says how to read externalParameters and dependencies. docs/audit.md has the table."""

STAGE_BUILD_TYPE_V1 = "urn:qinglan:stage:v1"
"""Older build type, which is still read. In it, a folder's SHA3-256 is called `sha256`."""

UNKNOWN_ALGORITHM = "sha256 of a file, sha3_256 of a folder"
"""Algorithm of a digest whose statement does not say if it belongs to a file or a folder."""

COMMIT = "gitCommit"
"""Digest algorithm of the input `code`, which is a git commit. All other artifacts are bytes that can be compared."""

BUILDER = "urn:qinglan:builder:v1"
RELEASE_STAGE = "release"
"""Name of the only stage whose statement a releaser's key signs."""

EXTERNAL_INPUT = "given"
"""Annotation that marks an external input. No step made it, so the chain of statements may end at it."""


class ArtifactRef(NamedTuple):
    """Reference to an artifact by its digest."""

    name: str
    digest: str
    """SHA-256 of a file's bytes, digest of a folder (digests.py), or git commit of code."""

    uri: str = ""
    about: Mapping[str, Any] = {}
    """Annotations, such as the number of rows."""

    algorithm: str = FILE_ALGORITHM

    @property
    def is_external(self) -> bool:
        return bool(self.about.get(EXTERNAL_INPUT))

    @property
    def is_bytes(self) -> bool:
        return self.algorithm != COMMIT


class Statement(NamedTuple):
    stage: str
    made: tuple[ArtifactRef, ...]
    used: tuple[ArtifactRef, ...]
    config: Mapping[str, Any]
    facts: Mapping[str, Any]
    """Figures that the step recorded."""

    run: str
    started: str
    ended: str
    versions: Mapping[str, str]

    @property
    def tenant(self) -> str:
        """Return the tenant that the step's settings name; empty if they name no tenant."""
        named = self.config.get("tenant_id")
        return named if isinstance(named, str) else ""

    @property
    def at(self) -> datetime:
        """Return the time at which the step ended, as the statement claims."""
        return parse_time(self.ended)


def parse_time(text: str) -> datetime:
    """Parse an ISO time with a time zone and convert it to UTC; raises a DataError for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, TypeError) as error:
        raise DataError(f"{str(text)[:40]!r} is not a time") from error
    if moment.tzinfo is None:
        raise DataError(f"{text!r} has no time zone")
    # A forged time such as 0001-01-01T00:00:00+23:59 is before the first day of the calendar in UTC.
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise DataError(f"{text!r} is out of range for a time") from error


def to_payload(statement: Statement) -> bytes:
    """Serialise a statement to the JSON bytes that are signed."""
    settings = flatten_config(statement.config)
    seeds = {path: value for path, value in settings.items() if path.rpartition(".")[2] == "seed"}
    body = {
        "_type": STATEMENT_TYPE,
        "subject": [_resource(part) for part in statement.made],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": STAGE_BUILD_TYPE,
                "externalParameters": {"stage": statement.stage, "config": statement.config},
                "internalParameters": {"seeds": seeds},
                "resolvedDependencies": [_resource(part) for part in statement.used],
            },
            "runDetails": {
                "builder": {"id": BUILDER, "version": statement.versions},
                "metadata": {
                    "invocationId": statement.run,
                    "startedOn": statement.started,
                    "finishedOn": statement.ended,
                },
                "byproducts": [{"name": "facts", "annotations": statement.facts}],
            },
        },
    }
    return orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)


def from_payload(payload: bytes, where: str = "statement") -> Statement:
    """Parse a payload into a statement; raises a DataError if it is not the statement of a stage."""
    try:
        body = parse_json_mapping(payload, where)
    except DataError as error:
        line = str(error).removeprefix(f"{where}:").rstrip(".")
        raise DataError(f"{where}: not an in-toto statement (line {line}).") from error
    try:
        definition, details = body["predicate"]["buildDefinition"], body["predicate"]["runDetails"]
        build_type = definition["buildType"]
        types = body["_type"], body["predicateType"]
        if types != (STATEMENT_TYPE, PREDICATE_TYPE) or build_type not in (STAGE_BUILD_TYPE, STAGE_BUILD_TYPE_V1):
            raise DataError(f"{where}: no provenance of a stage ({body['predicateType']}, {build_type}).")
        parameters, metadata = definition["externalParameters"], details["metadata"]
        return Statement(
            str(parameters["stage"]),
            tuple(_parse_resource(resource, build_type) for resource in body["subject"]),
            tuple(_parse_resource(resource, build_type) for resource in definition["resolvedDependencies"]),
            _mapping(parameters["config"]),
            _mapping(next((item["annotations"] for item in details["byproducts"] if item["name"] == "facts"), {})),
            str(metadata["invocationId"]),
            str(metadata["startedOn"]),
            str(metadata["finishedOn"]),
            _mapping(details["builder"].get("version", {})),
        )
    except (KeyError, TypeError, AttributeError, StopIteration, ValueError) as error:
        raise DataError(f"{where}: not an in-toto statement ({type(error).__name__}: {error}).") from error


def _resource(part: ArtifactRef) -> dict[str, Any]:
    # https://github.com/in-toto/attestation/blob/main/spec/v1/resource_descriptor.md
    resource: dict[str, Any] = {"name": part.name, "digest": {part.algorithm: part.digest}}
    # A local path is left out, as it could name a person.
    if "://" in part.uri:
        resource["uri"] = part.uri
    if part.about:
        resource["annotations"] = dict(part.about)
    return resource


def algorithm_fault(part: ArtifactRef, folder: bool) -> str:
    """Return a fault if the digest of a folder or file does not have the algorithm for its kind; else empty."""
    right = FOLDER_ALGORITHM if folder else FILE_ALGORITHM
    if part.algorithm in (right, UNKNOWN_ALGORITHM):
        return ""
    return f"its digest is called {part.algorithm}, and that of a {'folder' if folder else 'file'} is {right}"


def _parse_resource(resource: Mapping[str, Any], build_type: str) -> ArtifactRef:
    [(algorithm, digest)] = resource["digest"].items()
    if build_type == STAGE_BUILD_TYPE_V1 and algorithm == FILE_ALGORITHM:
        algorithm = UNKNOWN_ALGORITHM
    about = _mapping(resource.get("annotations", {}))
    return ArtifactRef(str(resource["name"]), str(digest), str(resource.get("uri", "")), about, algorithm)


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{str(value)[:40]!r} stands where an object belongs")
    return value


def flatten_config(config: Any, path: str = "") -> dict[str, Any]:
    """Flatten nested settings into one dict, whose keys are dotted paths such as `train.epochs`."""
    if not isinstance(config, Mapping):
        return {path: config}
    inside = [flatten_config(value, f"{path}.{name}" if path else str(name)) for name, value in config.items()]
    return {name: value for settings in inside for name, value in settings.items()}
