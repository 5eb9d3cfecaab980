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

import orjson

from qinglan.config import load_yaml
from qinglan.digests import digest as digest_of
from qinglan.errors import AlteredError, ConfigError, DataError, QinglanError
from qinglan.lineage.dsse import ENVELOPE_SUFFIX, open_envelope
from qinglan.lineage.evidence_folders import CombinedEvidence, Evidence, FileEvidence, ReleaseFolder, RunFolder
from qinglan.lineage.evidence_source import record_paths
from qinglan.lineage.findings import Finding
from qinglan.lineage.release_folder import PROVENANCE
from qinglan.lineage.statement import Statement, from_payload
from qinglan.lineage.trust import TrustPolicy

DIGEST = re.compile(r"[0-9a-f]{8,64}")
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*/[a-z0-9][a-z0-9._-]*")
IN_STORE = re.compile(r"(?P<store>.+?)[/@#](?P<digest>[0-9a-f]{64})/?")
Kind = Literal["release", "run", "artifact"]


class AuditTarget(NamedTuple):
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

    absent: frozenset[str] = frozenset()
    """FileEvidence of the model that stayed in the store: their digests are signed for, their bytes not at hand."""


@contextmanager
def open_target(target: str, store: str = "", files: Sequence[Path] = (), name: str = "") -> Iterator[AuditTarget]:
    """What the target is; what only a store has is there while the block lasts."""
    from qinglan.store import open_store

    more = [FileEvidence(path) for path in files]
    path = Path(target)
    if path.exists():
        yield _local_target(path, more, name)
        return
    if found := IN_STORE.fullmatch(target):
        store, target = found["store"], found["digest"]
    if not (DIGEST.fullmatch(target) or NAME.fullmatch(target)):
        raise ConfigError(
            f"{target}: no such file or folder, and neither a digest nor a name as tenant/model. Give a release's "
            "folder, a run's, an artifact in a run, or what a store holds."
        )
    shelf = open_store(store)
    digest, name = resolve_digest(shelf, target, name)
    with TemporaryDirectory(prefix="qinglan-audit-") as folder:
        place = Path(folder) / digest[:12]
        try:
            shelf.pull(digest, place)
        except DataError as error:
            if not shelf.has(digest):
                raise
            raise AlteredError(str(error)) from error
        yield release_target(place, more, name, digest, tuple(read_notes(shelf, digest)))._replace(label=target)


def resolve_digest(shelf: Any, target: str, name: str = "") -> tuple[str, str]:
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
        raise AlteredError(str(error)) from error
    if entry is None:
        there = ", ".join(sorted(shelf.names())[:10]) or "none"
        raise DataError(f"{name}: the store at {shelf.address} has no such name. It has: {there}.")
    return str(entry.digest)


def read_notes(shelf: Any, digest: str) -> list[bytes]:
    """What lies beside a release; a note that somebody changed is no reason to believe the others."""
    try:
        return [bytes(one) for one in shelf.notes(digest)]
    except DataError as error:
        raise AlteredError(str(error)) from error


def release_target(
    folder: Path,
    more: Iterable[Evidence],
    name: str = "",
    digest: str = "",
    notes: tuple[bytes, ...] = (),
    absent: frozenset[str] = frozenset(),
) -> AuditTarget:
    """A release: the walk begins at what its statement says it made; files in folders are the folders' matter.

    Where some are absent, `digest` is that of the whole folder by its statement.
    """
    evidence = CombinedEvidence([ReleaseFolder(folder, absent), *more])
    found, faults = digest if absent else digest_of(folder), []
    if digest and found != digest:
        faults.append(Finding("release", "altered", f"its folder has digest {found[:12]}, not {digest[:12]}"))
    try:
        own = read_statement(folder / PROVENANCE)
        until = own.at
    except (DataError, OSError) as error:
        faults.append(Finding(PROVENANCE, "altered", str(error)))
        return AuditTarget(
            str(folder), "release", (), evidence, "", name, found, folder, None, tuple(faults), notes, absent
        )
    name = name or (str(own.config.get("name", "")) if isinstance(own.config, dict) else "")
    starts = tuple(part.digest for part in own.made if "/" not in part.name)
    return AuditTarget(
        str(folder), "release", starts, evidence, name.partition("/")[0], name, found, folder, until, tuple(faults),
        notes, absent,
    )  # fmt: skip


def check_files(one: AuditTarget, policy: TrustPolicy, name: str = "") -> list[Finding]:
    """What the release's own files are worth."""
    from qinglan.lineage.release_check import check_release

    if one.release is None:
        return []
    return check_release(one.release, policy, name, one.absent)


def read_statement(path: Path) -> Statement:
    return from_payload(open_envelope(path.read_bytes(), str(path)).payload, str(path))


def find_run(path: Path) -> Path | None:
    """The run that a path is in."""
    return next((one for one in (path, *path.parents) if (one / "records").is_dir()), None)


def _local_target(path: Path, more: list[FileEvidence], name: str) -> AuditTarget:
    if (path / PROVENANCE).is_file():
        return release_target(path, more, name)
    if (path / "records").is_dir():
        return _run_target(path, more)
    root = find_run(path.absolute().parent) or find_run(path.resolve().parent)
    if root is None:
        raise ConfigError(
            f"{path}: neither a release (it has no {PROVENANCE}), nor a run (no records/), nor in one. Name the "
            "release, the run, or a file of it."
        )
    run = RunFolder(root)
    start = run.digest_of(path) or digest_of(path)
    return AuditTarget(str(path), "artifact", (start,), CombinedEvidence([run, *more]), _tenant(root))


def _run_target(root: Path, more: list[FileEvidence]) -> AuditTarget:
    """A run: all that its steps made, the last first, and its release where there is one."""
    run, tenant = RunFolder(root), _tenant(root)
    told, faults = _run_statements(root / "records")
    if not told:
        faults.append(Finding("records", "missing", f"{root / 'records'}: no step has left a statement"))
    faults += unrecorded_outputs(told, run)
    parts = [part for one in reversed(told) for part in one.made or one.used]
    starts = tuple(dict.fromkeys(part.digest for part in parts))
    subject = AuditTarget(str(root), "run", starts, CombinedEvidence([run, *more]), tenant, findings=tuple(faults))
    released = {part.digest for one in told if one.stage == "register" for part in one.made}
    folder = next((one.path for one in run.releases if run.digest_of(one.path) in released), None)
    if folder is None:
        return subject
    own = release_target(folder, more)
    starts = tuple(dict.fromkeys((*own.starts, *starts)))
    return own._replace(
        label=str(root), kind="run", starts=starts, evidence=subject.evidence, until=None,
        findings=(*faults, *own.findings),
    )  # fmt: skip


def unrecorded_outputs(told: Iterable[Statement], run: RunFolder) -> list[Finding]:
    """What a step of this run signed for, and no record says where it is: the record is gone, or was changed."""
    return [
        Finding(f"{one.stage}'s {part.name}", "missing", "no record of the run says where its bytes are")
        for one in told
        for part in one.made
        if part.is_bytes and not run.places(part.digest, part.name)
    ]


def _run_statements(records: Path) -> tuple[list[Statement], list[Finding]]:
    """The statements of a run's steps, in the order of time."""
    found, faults = [], []
    for path in sorted(one for one in records.glob(f"*{ENVELOPE_SUFFIX}") if one.is_file()):
        try:
            one = read_statement(path)
            found.append((one.at, one.stage, one))
        except DataError as error:
            faults.append(Finding(f"statement {path.name}", "altered", str(error)))
    faults.extend(
        Finding(f"statement of {record.stem}", "missing", f"{record}: done, and nobody signed for it")
        for record in record_paths(records)
        if _done_unsigned(record)
    )
    return [one for *_, one in sorted(found, key=lambda item: item[:2])], faults


def _done_unsigned(record: Path) -> bool:
    try:
        return (
            orjson.loads(record.read_bytes())["status"] == "done"
            and not record.with_suffix(ENVELOPE_SUFFIX).is_file()
        )
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return False


def _tenant(root: Path) -> str:
    """For whom a run was made, by its configuration."""
    try:
        values = load_yaml(root / "config.yaml")
    except QinglanError:
        return ""
    release = values.get("register")
    named = str(release.get("name", "")) if isinstance(release, dict) else ""
    return str(values.get("tenant_id") or named.partition("/")[0])
