"""A release's folder: what may serve, with everything that speaks for it.

    model/                 byte for byte what was judged
    model.sig              the releaser's signature over it (OMS)
    provenance.dsse.json   the releaser's statement: this name, these files, this verdict
    mlbom.cdx.json  evaluation.json  report.html
    lineage/               the statements of every step before it, and their papers

release = read_release(folder)      # nothing is verified; check_release in release.py does that
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from qinglan.digests import FOLDER_ALGORITHM, tree_digest
from qinglan.errors import DataError
from qinglan.lineage.dsse import Envelope, open_envelope
from qinglan.lineage.graph import RELEASE_STAGE
from qinglan.lineage.statement import ArtifactRef, Statement, from_payload, parse_time
from qinglan.plain_files import plain_files

MODEL, LINEAGE = "model", "lineage"
FOLDERS = (MODEL, LINEAGE)
SIGNATURE, PROVENANCE, BOM = "model.sig", "provenance.dsse.json", "mlbom.cdx.json"
EVALUATION, REPORT = "evaluation.json", "report.html"


class Release(NamedTuple):
    """What a folder says it is."""

    name: str
    """Tenant and model: fivedoctors/rewriter."""

    tenant: str
    statement: Statement
    digest: str
    """Of the whole folder: what a store keeps it under, and a name points to."""


class ReleaseStatement(NamedTuple):
    """The release's own statement as it lies there."""

    name: str
    tenant: str
    statement: Statement
    envelope: Envelope


def read_release(folder: Path) -> Release:
    """A DataError where the folder is no release."""
    from qinglan.files import sha256_file

    found = read_release_statement(folder)
    files = {name: sha256_file(path) for name, path in sorted_files(plain_files(folder).files)}
    return Release(found.name, found.tenant, found.statement, tree_digest(files))


def read_release_statement(folder: Path) -> ReleaseStatement:
    """The statement and the name in it; a DataError where there is none."""
    path = folder / PROVENANCE
    if path.is_symlink() or not path.is_file():
        raise DataError(f"{path}: no such file, or not a plain one. The register stage writes a release.")
    envelope = open_envelope(path.read_bytes(), str(path))
    statement = from_payload(envelope.payload, str(path))
    name = statement.config.get("name") if isinstance(statement.config, Mapping) else None
    if statement.stage != RELEASE_STAGE or not isinstance(name, str) or name.count("/") != 1:
        raise DataError(f"{path}: the statement of {statement.stage}, and none of a release with its name.")
    parse_time(statement.ended)
    return ReleaseStatement(name, name.partition("/")[0], statement, envelope)


def sorted_files(files: Mapping[str, Path]) -> list[tuple[str, Path]]:
    """In the order of a folder's digest."""
    return sorted(files.items(), key=lambda item: item[0].encode())


def release_artifacts(files: Mapping[str, str]) -> list[ArtifactRef]:
    """What a release's statement says was made: each file, and the folders as artifacts are called by."""
    trees = [
        ArtifactRef(folder, tree_digest(files_inside(files, folder)), algorithm=FOLDER_ALGORITHM)
        for folder in FOLDERS
    ]
    return [*trees, *(ArtifactRef(name, digest) for name, digest in files.items())]


def files_inside(files: Mapping[str, str], folder: str) -> dict[str, str]:
    """The files of one folder, by their paths in it, as its own digest takes them."""
    return {
        name.removeprefix(f"{folder}/"): files[name]
        for name in sorted(files, key=str.encode)
        if name.startswith(f"{folder}/")
    }
