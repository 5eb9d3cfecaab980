"""The target of an audit: a release, a run, an artifact of a run, or something in a store.

with open_target("fivedoctors/rewriter", store="runs/store") as target: ...
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from qinglan.config import yaml_mapping
from qinglan.errors import AlteredError, ConfigError, DataError, QinglanError
from qinglan.evaluation.gates.locked_test_uses import use_faults
from qinglan.files.digests import digest as digest_of
from qinglan.files.plain_files import read_plain
from qinglan.lineage.signing.dsse import ENVELOPE_SUFFIX
from qinglan.lineage.signing.findings import Finding
from qinglan.lineage.signing.signed_statement import read_signed_statement
from qinglan.lineage.signing.statement import Statement
from qinglan.lineage.trace.evidence import (
    CombinedEvidence,
    Evidence,
    FileEvidence,
    ReleaseFolder,
    RunFolder,
    mapping_or_empty,
)
from qinglan.lineage.trace.name_moves import NameClaim, read_claim
from qinglan.lineage.trace.release_folder import PROVENANCE, read_figures
from qinglan.store import Store, open_store

DIGEST = re.compile(r"[0-9a-f]{8,64}")
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*/[a-z0-9][a-z0-9._-]*")
IN_STORE = re.compile(r"(?P<store>.+?)[/@#](?P<digest>[0-9a-f]{64})/?")
Kind = Literal["release", "run", "artifact"]
LOCKED_TEST = "locked test"
"""Name of the finding that a release contradicts its store's list of models judged by the locked test."""

SHOWN_FILES = "files"
"""Folder in a run with links to its newest artifacts, under names for people."""

SHOWN_NAMES = {
    "sft": "chats", "ppo": "prompts", "augmented_sft": "augmented_chats", "augmented_ppo": "augmented_prompts",
    "distil": "distil_table",
}  # fmt: skip
"""Artifact name for each file name in `files/` that differs from the artifact's name."""

SHEET_NAMES = {"rewrites": "rewrites_table", "validated": "validated_table"}
"""Artifact name for each sheet's name in `files/` that differs from the artifact's name."""

SHEET_SUFFIXES = frozenset({".xlsx"})
"""File suffixes of sheets. A sheet in `files/` is a copy that people may edit, not the signed artifact."""

OPTIONAL = frozenset({"release", "small_release"})
"""Artifacts that a later run may remove from `files/`, although a step's record still names them."""


class AuditTarget(NamedTuple):
    label: str
    kind: Kind
    starts: tuple[str, ...]
    evidence: Evidence
    tenant: str = ""
    name: str = ""
    digest: str = ""
    """Digest of the release's folder."""

    release: Path | None = None
    until: datetime | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[bytes, ...] = ()
    """Signed notes that are stored beside the release."""

    absent: frozenset[str] = frozenset()
    """Model files that stayed in the store. Their digests are signed, but their bytes are not here to compare."""

    claim: NameClaim | None = None
    """Evidence that the name points to this release, if the target is a name."""

    changed_notes: tuple[str, ...] = ()
    """Names of the notes stored beside the release whose bytes were changed."""

    remarks: tuple[str, ...] = ()
    """Changes in `files/` that are not faults, since the signed artifacts are in `artifacts/`."""


@contextmanager
def open_target(target: str, store: str = "", files: Sequence[Path] = ()) -> Iterator[AuditTarget]:
    """Find the target of an audit. A release in a store is downloaded, and deleted when the block ends."""
    more = [FileEvidence(path) for path in files]
    if Path(target).exists():
        yield _local_target(Path(target), more)
        return
    if match := IN_STORE.fullmatch(target):
        store, target = match["store"], match["digest"]
    if not (DIGEST.fullmatch(target) or NAME.fullmatch(target)):
        raise ConfigError(
            f"{target}: no such file or folder, and neither a digest nor a name as tenant/model. Give a release's "
            "folder, a run's, an artifact in a run, or what a store holds."
        )
    try:
        opened = open_store(store)
        claim = name_claim(opened, target) if NAME.fullmatch(target) else None
        digest = claim.history.digest if claim else resolve_digest(opened, target)
    except ConfigError as error:
        raise ConfigError(f"{target}: no such file or folder, and no store can be opened: {error}") from error
    with TemporaryDirectory(prefix="qinglan-audit-") as temporary:
        folder = Path(temporary) / digest[:12]
        try:
            opened.pull(digest, folder)
        except DataError as error:
            # A release that the store lists and cannot deliver was changed; one that it does not list is unknown.
            if not opened.has(digest):
                raise
            raise AlteredError(str(error)) from error
        name = claim.history.name if claim else ""
        pulled = release_target(folder, more, name, digest, store=opened)
        yield pulled._replace(label=target, claim=claim, changed_notes=tuple(opened.changed_notes(digest)))


def resolve_digest(store: Store, target: str) -> str:
    """Return the only digest in the store that begins with `target`; raises a DataError if none or several do."""
    matches = [digest for digest in store.digests() if digest.startswith(target)]
    if len(matches) > 1:  # an attacker may have planted a list of files under a wrong digest, to hide a release
        pushed, matches = matches, []
        for digest in pushed:
            with suppress(DataError):
                matches += [digest] if store.has(digest) else []
    if len(matches) != 1:
        raise DataError(
            f"{target}: {len(matches)} releases in the store at {store.address} begin with this. Give more of the "
            "digest; `qinglan audit DIGEST --which-models` finds what descends from a file or another digest."
        )
    return matches[0]


def name_claim(store: Store, name: str) -> NameClaim:
    """Read a name's history and the other evidence about it in the store, unverified."""
    try:
        history = store.name(name)
    except DataError as error:
        raise AlteredError(str(error)) from error
    if history is None:
        names = ", ".join(sorted(store.names())[:10])
        raise DataError(
            f"{name}: no such file or folder, and the store at {store.address} has no such name. "
            f"It has: {names or 'none'}."
        )
    return read_claim(store, history)


def release_target(
    folder: Path,
    more: Iterable[Evidence],
    name: str = "",
    digest: str = "",
    absent: frozenset[str] = frozenset(),
    store: Store | None = None,
) -> AuditTarget:
    """Describe a release. Its audit starts from the outputs in its statement, without the single files in folders.

    If some files are `absent`, the folder cannot be hashed, so `digest` is taken as its digest. From a `store`, the
    notes beside the release are read, and the uses of its locked test are checked.
    """
    evidence = CombinedEvidence([ReleaseFolder(folder, absent), *more])
    actual, findings = digest if absent else digest_of(folder), []
    if digest and actual != digest:
        findings.append(Finding("release", "altered", f"its folder has digest {actual[:12]}, not {digest[:12]}"))
    if store is not None:
        findings += [Finding(LOCKED_TEST, "missing", fault) for fault in use_faults(store, read_figures(folder))]
    starts: tuple[str, ...] = ()
    tenant, until = "", None
    try:
        statement = read_signed_statement(folder / PROVENANCE).statement
        until = statement.at
    except (DataError, OSError) as error:
        findings.append(Finding(PROVENANCE, "altered", str(error)))
    else:
        name = name or str(statement.config.get("name", ""))
        tenant = name.partition("/")[0]
        starts = tuple(part.digest for part in statement.made if "/" not in part.name)
    notes = tuple(store.notes(digest or actual)) if store is not None else ()
    return AuditTarget(
        str(folder), "release", starts, evidence, tenant, name, actual, folder, until, tuple(findings), notes, absent
    )


def find_run(path: Path) -> Path | None:
    """Return the folder of the run that contains a path; None if there is none."""
    return next((folder for folder in (path, *path.parents) if (folder / "records").is_dir()), None)


def _local_target(path: Path, more: list[FileEvidence]) -> AuditTarget:
    if (path / PROVENANCE).is_file():
        return release_target(path, more)
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
    """Describe a run. Its audit starts from its release, if it has one, and from the outputs of all its steps."""
    run = RunFolder(root)
    statements, findings = _run_statements(run)
    if not statements:
        findings.append(Finding("records", "missing", f"{root / 'records'}: it holds no signed statement of a step"))
    # If no record gives the path of a signed output, the record was removed or changed.
    findings += [
        Finding(f"{statement.stage}'s {part.name}", "missing", "no record of the run says where its bytes are")
        for statement in statements
        for part in statement.made
        if part.is_bytes and not run.locations(part.digest, part.name)
    ]
    findings += shown_file_findings(run)
    parts = [part for statement in reversed(statements) for part in statement.made or statement.used]
    starts = tuple(dict.fromkeys(part.digest for part in parts))
    target = AuditTarget(
        str(root),
        "run",
        starts,
        CombinedEvidence([run, *more]),
        _tenant(root),
        findings=tuple(findings),
        remarks=tuple(shown_file_remarks(run)),
    )
    registered = {part.digest for statement in statements if statement.stage == "register" for part in statement.made}
    folder = next((release.path for release in run.releases if run.digest_of(release.path) in registered), None)
    if folder is None:
        return target
    release = release_target(folder, more)
    return target._replace(
        starts=tuple(dict.fromkeys((*release.starts, *starts))),
        tenant=release.tenant,
        name=release.name,
        digest=release.digest,
        release=folder,
        findings=(*findings, *release.findings),
    )


def shown_file_findings(run: RunFolder) -> Iterator[Finding]:
    """Yield a finding for each entry of `files/` that does not lead to the artifact of its name.

    Sheets are skipped, because they are copies that people fill in. A changed sheet is only a remark.
    """
    for path in _shown_files(run):
        name = shown_name(path)
        digests = run.recorded_digests(name)
        if not digests or path.suffix in SHEET_SUFFIXES or path.name.startswith("."):
            continue
        outside = path.is_symlink() and not path.resolve().is_relative_to(run.root.resolve())
        if not path.exists():
            if outside:
                continue  # an input from outside of the run, which may be gone
            why = "it is a broken link"
        elif run.digest_of(path, name) in digests or (not outside and digest_of(path) in digests):
            continue
        else:
            why = f"it is not the {name} of this run's records; open the one in {run.root / 'artifacts'}"
        yield Finding(f"{SHOWN_FILES}/{path.name}", "altered", f"{path}: {why}")


def shown_file_remarks(run: RunFolder) -> Iterator[str]:
    """Name the sheets in `files/` that were changed since a step wrote them, and artifacts that `files/` lacks."""
    files = _shown_files(run)
    for path in files:
        digests = run.recorded_digests(name := shown_name(path))
        inside = path.resolve().is_relative_to(run.root.resolve())
        if path.suffix in SHEET_SUFFIXES and digests and inside and path.is_file() and digest_of(path) not in digests:
            yield (
                f"{path}: filled in or changed since a step wrote it. It is a copy for people; what is signed is "
                f"{name} in {run.root / 'artifacts'}."
            )
    outputs = {name for record in run.records.values() for name in mapping_or_empty(record.get("outputs"))}
    if files and (gone := sorted(outputs - OPTIONAL - set(map(shown_name, files)))):
        yield (
            f"{run.root / SHOWN_FILES} does not show {', '.join(gone)} any more: what was removed there led to "
            f"{run.root / 'artifacts'}. The same `qinglan run` again shows it."
        )


def _shown_files(run: RunFolder) -> list[Path]:
    folder = run.root / SHOWN_FILES
    return sorted(folder.iterdir()) if folder.is_dir() else []


def shown_name(path: Path) -> str:
    stem = path.name.partition(".")[0]
    return (SHEET_NAMES if path.suffix in SHEET_SUFFIXES else SHOWN_NAMES).get(stem, stem)


def _run_statements(run: RunFolder) -> tuple[list[Statement], list[Finding]]:
    """Read the statements of a run's steps, oldest first, and findings about malformed or missing statements."""
    statements, findings, records = [], [], run.root / "records"
    for path in sorted(path for path in records.glob(f"*{ENVELOPE_SUFFIX}") if path.is_file()):
        try:
            statements.append(read_signed_statement(path).statement)
        except DataError as error:
            findings.append(Finding(f"statement {path.name}", "altered", str(error)))
    for stage, record in run.records.items():
        path = records / f"{stage}.json"
        if record.get("status") == "done" and not path.with_suffix(ENVELOPE_SUFFIX).is_file():
            why = f"{path}: done, but it has no signed statement"
            findings.append(Finding(f"statement of {stage}", "missing", why))
    return sorted(statements, key=lambda statement: (statement.at, statement.stage)), findings


def _tenant(root: Path) -> str:
    path = root / "config.yaml"
    try:
        values = yaml_mapping(read_plain(path).decode(), str(path))
    except (OSError, UnicodeDecodeError, QinglanError):
        return ""
    release = values.get("register")
    name = str(release.get("name", "")) if isinstance(release, dict) else ""
    return str(values.get("tenant_id") or name.partition("/")[0])
