"""What a step says of what it made: an in-toto Statement v1 with SLSA provenance v1, and nothing of any person.

Things are named by digest. A local path is never in it: it would say whose machine it was.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from qinglan.digests import FILE_ALGORITHM, FOLDER_ALGORITHM
from qinglan.errors import DataError

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
STAGE_BUILD_TYPE = "urn:qinglan:stage:v2"
"""SLSA's buildType: how externalParameters and dependencies are to be read. docs/audit.md tells."""

STAGE_BUILD_TYPE_V1 = "urn:qinglan:stage:v1"
"""Read and not written any more: its `sha256` of a folder is the folder's SHA3-256."""

UNKNOWN_ALGORITHM = "sha256 of a file, sha3_256 of a folder"
"""The algorithm of a digest whose statement does not say whether it is a file's or a folder's."""

COMMIT = "gitCommit"
"""What code goes by; everything else is bytes that can be looked at."""

BUILDER = "urn:qinglan:builder:v1"
EXTERNAL_INPUT = "given"
"""Annotation of what nobody in the house made: the chain may end there."""


class ArtifactRef(NamedTuple):
    """One thing by its digest."""

    name: str
    digest: str
    """Of a file's bytes, or of a folder as digests.py has it. Of code, the git commit."""

    uri: str = ""
    about: Mapping[str, Any] = {}
    """Row counts and the like."""

    algorithm: str = FILE_ALGORITHM

    @property
    def given(self) -> bool:
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
    """What the step counted."""

    run: str
    started: str
    ended: str
    versions: Mapping[str, str]

    @property
    def at(self) -> datetime:
        """When it was signed, as it says."""
        return parse_time(self.ended)


def parse_time(text: str) -> datetime:
    """An ISO time with its zone; a DataError otherwise."""
    try:
        found = datetime.fromisoformat(text)
    except (ValueError, TypeError) as error:
        raise DataError(f"{str(text)[:40]!r} is no time") from error
    if found.tzinfo is None:
        raise DataError(f"{text!r} has no time zone")
    try:
        return found.astimezone(UTC)
    except OverflowError as error:
        raise DataError(f"{text!r} is no time that was") from error


def to_payload(statement: Statement) -> bytes:
    """The bytes that are signed."""
    seeds = dict(_seeds(statement.config))
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
                    "invocationId": statement.run, "startedOn": statement.started, "finishedOn": statement.ended,
                },
                "byproducts": [{"name": "facts", "annotations": statement.facts}],
            },
        },
    }  # fmt: skip
    return orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)


def from_payload(payload: bytes, where: str = "statement") -> Statement:
    """What a payload says; a DataError where it is no statement of a stage."""
    try:
        body = orjson.loads(payload)
        definition, details = body["predicate"]["buildDefinition"], body["predicate"]["runDetails"]
        form = definition["buildType"]
        if (body["_type"], body["predicateType"]) != (STATEMENT_TYPE, PREDICATE_TYPE) or form not in (
            STAGE_BUILD_TYPE,
            STAGE_BUILD_TYPE_V1,
        ):
            raise DataError(f"{where}: no provenance of a stage ({body['predicateType']}, {form}).")
        given, metadata = definition["externalParameters"], details["metadata"]
        return Statement(
            str(given["stage"]), tuple(_parse_resource(one, form) for one in body["subject"]),
            tuple(_parse_resource(one, form) for one in definition["resolvedDependencies"]), given["config"],
            next((one["annotations"] for one in details["byproducts"] if one["name"] == "facts"), {}),
            str(metadata["invocationId"]), str(metadata["startedOn"]), str(metadata["finishedOn"]),
            details["builder"].get("version", {}),
        )  # fmt: skip
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, StopIteration, ValueError) as error:
        raise DataError(f"{where}: no in-toto statement ({type(error).__name__}: {error}).") from error


def _resource(part: ArtifactRef) -> dict[str, Any]:
    """in-toto's ResourceDescriptor."""
    found: dict[str, Any] = {"name": part.name, "digest": {part.algorithm: part.digest}}
    if part.uri and "://" in part.uri:
        found["uri"] = part.uri
    if part.about:
        found["annotations"] = dict(part.about)
    return found


def algorithm_fault(part: ArtifactRef, folder: bool) -> str:
    """Why the digest goes by another function's name than that of what it is a digest of; "" where it does not."""
    right = FOLDER_ALGORITHM if folder else FILE_ALGORITHM
    if part.algorithm in (right, UNKNOWN_ALGORITHM):
        return ""
    return f"its digest is called {part.algorithm}, and that of a {'folder' if folder else 'file'} is {right}"


def subject_digest(resource: Mapping[str, Any]) -> str:
    """The digest of a release that a statement is about; `sha256` is what it was called before."""
    digests = resource["digest"]
    return str(digests[FOLDER_ALGORITHM] if FOLDER_ALGORITHM in digests else digests[FILE_ALGORITHM])


def _parse_resource(resource: Mapping[str, Any], form: str) -> ArtifactRef:
    [(algorithm, digest)] = resource["digest"].items()
    if form == STAGE_BUILD_TYPE_V1 and algorithm == FILE_ALGORITHM:
        algorithm = UNKNOWN_ALGORITHM
    return ArtifactRef(
        str(resource["name"]), str(digest), resource.get("uri", ""), resource.get("annotations", {}), algorithm
    )


def _seeds(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of that name, by its path."""
    if not isinstance(config, Mapping):
        return
    for name, value in config.items():
        here = f"{path}.{name}" if path else str(name)
        if name == "seed":
            yield here, value
        yield from _seeds(value, here)
