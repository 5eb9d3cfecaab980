"""What an audit is asked about: a release, a run, an artifact of a run, or what a store holds.

with subject("fivedoctors/rewriter", store="runs/store") as one: ...
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

from qinglan.config import load_yaml
from qinglan.errors import Altered, ConfigError, DataError, QinglanError
from qinglan.lineage.digests import digest as digest_of
from qinglan.lineage.dsse import open_envelope
from qinglan.lineage.evidence import PROVENANCE, Combined, Evidence, Files, ReleaseFolder, RunFolder
from qinglan.lineage.findings import Finding
from qinglan.lineage.looking import ENDING
from qinglan.lineage.statement import Statement, from_payload
from qinglan.lineage.trust import TrustPolicy

DIGEST = re.compile(r"[0-9a-f]{8,64}")
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*/[a-z0-9][a-z0-9._-]*")
IN_STORE = re.compile(r"(?P<store>.+?)[/@#](?P<digest>[0-9a-f]{64})/?")
Kind = Literal["release", "run", "artifact"]


class Subject(NamedTuple):
    label: str
    kind: Kind
    starts: tuple[str, ...]
    evidence: Evidence
    tenant: str = ""
    name: str = ""
    digest: str = ""
    """Of the release's folder."""

    release: Path | None = None
    until: datetime | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[bytes, ...] = ()
    """What lies beside a release in its store."""


@contextmanager
def subject(target: str, store: str = "", files: Sequence[Path] = (), name: str = "") -> Iterator[Subject]:
    """What the target is; what only a store has is there while the block lasts."""
    from qinglan.store import open_store

    more = [Files(path) for path in files]
    path = Path(target)
    if path.exists():
        yield _on_disk(path, more, name)
        return
    if found := IN_STORE.fullmatch(target):
        store, target = found["store"], found["digest"]
    if not (DIGEST.fullmatch(target) or NAME.fullmatch(target)):
        raise ConfigError(
            f"{target}: no such file or folder, and neither a digest nor a name as tenant/model. Give a release's "
            "folder, a run's, an artifact in a run, or what a store holds."
        )
    shelf = open_store(store)
    digest, name = stored(shelf, target, name)
    with TemporaryDirectory(prefix="qinglan-audit-") as folder:
        place = Path(folder) / digest[:12]
        try:
            shelf.pull(digest, place)
        except DataError as error:
            if not shelf.has(digest):
                raise
            raise Altered(str(error)) from None
        yield release_subject(place, more, name, digest, tuple(notes_of(shelf, digest)))._replace(label=target)


def stored(shelf: Any, target: str, name: str = "") -> tuple[str, str]:
    """The digest that a name points to, or that begins so; and the name, given or found."""
    if NAME.fullmatch(target):
        return _pointed(shelf, target), target
    found = [one for one in shelf.digests() if one.startswith(target)]
    if len(found) != 1:
        raise DataError(
            f"{target}: {len(found)} releases in the store at {shelf.address} begin so. Give more of the digest; "
            "`qinglan audit DIGEST --which-models` finds what descends from any other thing."
        )
    return found[0], name


def _pointed(shelf: Any, name: str) -> str:
    try:
        entry = shelf.name(name)
    except DataError as error:
        raise Altered(str(error)) from None
    if entry is None:
        there = ", ".join(sorted(shelf.names())[:10]) or "none"
        raise DataError(f"{name}: the store at {shelf.address} has no such name. It has: {there}.")
    return str(entry.digest)


def notes_of(shelf: Any, digest: str) -> list[bytes]:
    """What lies beside a release; a note that somebody changed is no reason to believe the others."""
    try:
        return [bytes(one) for one in shelf.notes(digest)]
    except DataError as error:
        raise Altered(str(error)) from None


def release_subject(
    folder: Path, more: Iterable[Evidence], name: str = "", digest: str = "", notes: tuple[bytes, ...] = ()
) -> Subject:
    """A release: the walk begins at what its statement says it made; files in folders are the folders' matter."""
    evidence = Combined([ReleaseFolder(folder), *more])
    found, faults = digest_of(folder), []
    if digest and found != digest:
        faults.append(Finding("release", "altered", f"its folder has digest {found[:12]}, not {digest[:12]}"))
    try:
        own = read_statement(folder / PROVENANCE)
        until = own.at
    except (DataError, OSError) as error:
        faults.append(Finding(PROVENANCE, "altered", str(error)))
        return Subject(str(folder), "release", (), evidence, "", name, found, folder, None, tuple(faults), notes)
    name = name or str(own.config.get("name", ""))
    starts = tuple(part.digest for part in own.made if "/" not in part.name)
    return Subject(
        str(folder), "release", starts, evidence, name.partition("/")[0], name, found, folder, until, tuple(faults),
        notes,
    )  # fmt: skip


def check_files(one: Subject, policy: TrustPolicy, name: str = "") -> list[Finding]:
    """What the release's own files are worth."""
    from qinglan.lineage.release import check_release

    if one.release is None:
        return []
    return check_release(one.release, policy, name)


def read_statement(path: Path) -> Statement:
    return from_payload(open_envelope(path.read_bytes(), str(path)).payload, str(path))


def run_of(path: Path) -> Path | None:
    """The run that a path is in."""
    return next((one for one in (path, *path.parents) if (one / "records").is_dir()), None)


def _on_disk(path: Path, more: list[Files], name: str) -> Subject:
    if (path / PROVENANCE).is_file():
        return release_subject(path, more, name)
    if (path / "records").is_dir():
        return _run_subject(path, more)
    root = run_of(path.absolute().parent) or run_of(path.resolve().parent)
    if root is None:
        raise ConfigError(
            f"{path}: neither a release (it has no {PROVENANCE}), nor a run (no records/), nor in one. Name the "
            "release, the run, or a file of it."
        )
    run = RunFolder(root)
    start = run.digest_of(path) or digest_of(path)
    return Subject(str(path), "artifact", (start,), Combined([run, *more]), _tenant(root))


def _run_subject(root: Path, more: list[Files]) -> Subject:
    """A run: its release, or what its last step made where there is none."""
    run, tenant = RunFolder(root), _tenant(root)
    last, faults = _last_step(root / "records")
    if last is None:
        faults.append(Finding("records", "missing", f"{root / 'records'}: no step has left a statement"))
        return Subject(str(root), "run", (), Combined([run, *more]), tenant, findings=tuple(faults))
    starts = tuple(part.digest for part in last.made or last.used)
    subject = Subject(str(root), "run", starts, Combined([run, *more]), tenant, findings=tuple(faults))
    if not run.releases or not (root / "records" / f"register{ENDING}").is_file():
        return subject
    folder = max(run.releases, key=lambda one: one.path.stat().st_mtime).path
    own = release_subject(folder, more)
    return own._replace(label=str(root), kind="run", evidence=subject.evidence, findings=(*faults, *own.findings))


def _last_step(records: Path) -> tuple[Statement | None, list[Finding]]:
    found, faults = [], []
    for path in sorted(records.glob(f"*{ENDING}")):
        try:
            one = read_statement(path)
            found.append((one.at, one.stage, one))
        except DataError as error:
            faults.append(Finding(f"statement {path.name}", "altered", str(error)))
    return max(found)[2] if found else None, faults


def _tenant(root: Path) -> str:
    """For whom a run was made, by its configuration."""
    try:
        return str(load_yaml(root / "config.yaml").get("tenant_id", ""))
    except QinglanError:
        return ""
