"""A release's folder: a model that may serve, with the evidence for it.

    model/                 the model, byte for byte as it was evaluated
    model.sig              the releaser's signature over model/ (OMS)
    provenance.dsse.json   the releaser's statement, with the release's name, files and verdict
    mlbom.cdx.json  evaluation.json  report.html
    lineage/               the statements of all earlier steps, and their supporting files

release = read_release(folder)      # nothing is verified; release_check.py does that
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from qinglan.documents import parse_json_mapping
from qinglan.errors import DataError
from qinglan.files.digests import FOLDER_ALGORITHM, tree_digest
from qinglan.files.files import sha256_file
from qinglan.files.plain_files import plain_files, read_plain
from qinglan.lineage.signing.dsse import ENVELOPE_SUFFIX, Envelope
from qinglan.lineage.signing.signed_statement import SignedStatement, read_signed_statement
from qinglan.lineage.signing.statement import RELEASE_STAGE, ArtifactRef, Statement

MODEL, LINEAGE = "model", "lineage"
FOLDERS = (MODEL, LINEAGE)
SIGNATURE, PROVENANCE, BOM = "model.sig", "provenance.dsse.json", "mlbom.cdx.json"
EVALUATION, REPORT = "evaluation.json", "report.html"

VERDICT = "verdict"
"""Name of the gate's verdict, which is an output of the gate and an input of the release."""

PROMOTE, HOLD = "promote", "hold"


class Release(NamedTuple):
    """A release as its own statement describes it, unverified."""

    name: str
    """Name of the release as tenant/model, such as fivedoctors/rewriter."""

    tenant: str
    statement: Statement
    digest: str
    """Digest of the whole folder, under which a store keeps the release."""


class ReleaseStatement(NamedTuple):
    """The release's own statement, unverified."""

    name: str
    tenant: str
    statement: Statement
    envelope: Envelope
    digest: str
    """Digest of the statement's file."""


def read_release(folder: Path) -> Release:
    """Read a release and hash its files; raises a DataError if the folder is not a release."""
    release = read_release_statement(folder)
    files = {name: sha256_file(path) for name, path in sorted_files(plain_files(folder).files)}
    return Release(release.name, release.tenant, release.statement, tree_digest(files))


def read_release_statement(folder: Path) -> ReleaseStatement:
    """Read a release's own statement and the name in it; raises a DataError if it is missing or not a release's."""
    path = folder / PROVENANCE
    if path.is_symlink() or not path.is_file():
        raise DataError(f"{path}: no such file, or not a plain one. The register stage writes a release.")
    _, digest, envelope, statement = read_signed_statement(path)
    name = statement.config.get("name")
    if statement.stage != RELEASE_STAGE or not isinstance(name, str) or name.count("/") != 1:
        raise DataError(f"{path}: the statement of {statement.stage}, and none of a release with its name.")
    return ReleaseStatement(name, name.partition("/")[0], statement, envelope, digest)


def read_figures(folder: Path | None) -> dict[str, Any]:
    """Read a release's evaluation without verifying it; returns an empty dict if it cannot be read."""
    try:
        return parse_json_mapping(read_plain(folder / EVALUATION), EVALUATION) if folder else {}
    except (OSError, DataError):
        return {}


def sorted_files(files: Mapping[str, Path]) -> list[tuple[str, Path]]:
    """Sort files by the bytes of their names, the order that a folder's digest requires."""
    return sorted(files.items(), key=lambda item: item[0].encode())


def release_artifacts(files: Mapping[str, str]) -> list[ArtifactRef]:
    """The outputs that a release's statement lists: each folder of `FOLDERS` as a whole, then every single file."""
    trees = [
        ArtifactRef(folder, tree_digest(files_inside(files, folder)), algorithm=FOLDER_ALGORITHM)
        for folder in FOLDERS
    ]
    return [*trees, *(ArtifactRef(name, digest) for name, digest in files.items())]


def files_inside(files: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return one folder's files by their paths in the folder, in the order that the folder's digest requires."""
    return {
        name.removeprefix(f"{folder}/"): files[name]
        for name in sorted(files, key=str.encode)
        if name.startswith(f"{folder}/")
    }


def verdict_file_name(digest: str) -> str:
    return f"{VERDICT}-{digest[:12]}.json"


def says_promote(verdict: bytes) -> bool:
    try:
        return bool(parse_json_mapping(verdict, VERDICT)["word"] == PROMOTE)
    except (DataError, KeyError):
        return False


def gate_statements(lineage: list[SignedStatement], evaluation: str, verdict: str) -> list[SignedStatement]:
    """Return the statements that claim to have made this verdict from this evaluation."""
    return [
        item
        for item in lineage
        if evaluation in {part.digest for part in item.statement.used}
        and verdict in {part.digest for part in item.statement.made if part.name == VERDICT}
    ]


def paper_faults(statements: Iterable[Statement], files: Mapping[str, str]) -> dict[str, str]:
    """Return the faults of a lineage's supporting files, by file. `files` maps names of files to digests.

    A file has a fault if no statement names its bytes, or if it has the name of another artifact. Under a wrong name,
    a reader would take one prompt for another.
    """
    named: dict[str, dict[str, None]] = {}
    for part in (part for statement in statements for part in (*statement.made, *statement.used)):
        named.setdefault(part.digest, {})[part.name] = None
    faults = {}
    for file, digest in sorted(files.items()):
        patterns = [paper_pattern(name, digest) for name in named.get(digest, ())]
        if file.endswith(ENVELOPE_SUFFIX):
            continue
        if not patterns:
            faults[file] = "no statement names these bytes"
        elif not any(fnmatchcase(PurePath(file).name, pattern) for pattern in patterns):
            faults[file] = f"these bytes are {', '.join(named[digest])}, and lie under another name"
    return faults


def paper_pattern(artifact: str, digest: str) -> str:
    """Return the pattern of the file name under which step_inputs.py writes the supporting file of an artifact."""
    if artifact.startswith("prompt "):
        return f"{artifact.replace(' ', '-', 1)}.txt"
    patterns = {"reward": "reward.json", "journal": "paid-*.jsonl", "prices": "prices-*.json"}
    return verdict_file_name(digest) if artifact == VERDICT else patterns.get(artifact, "*")
