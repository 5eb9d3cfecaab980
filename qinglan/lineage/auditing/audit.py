"""Audit a release, a run or an artifact: check its bytes, and the signed statements about how it was made.

result = audit("runs/demo/fivedoctors", load_trust(Path("trust.yaml")))
result.verdict     # intact, incomplete or altered
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.errors import AlteredError, IncompleteAuditError, QinglanError
from qinglan.lineage.auditing.audit_targets import AuditTarget, Kind, open_target
from qinglan.lineage.release.release_check import check_release
from qinglan.lineage.release.release_notes import (
    CheckedRollout,
    Override,
    note_findings,
    read_overrides,
    read_rollout_notes,
)
from qinglan.lineage.signing.findings import FAULTS, GRAVE, WORST_FIRST, AuditVerdict, Finding, verdict_of
from qinglan.lineage.signing.statement import ArtifactRef
from qinglan.lineage.signing.statement_index import DATES
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.evidence import mapping_or_empty
from qinglan.lineage.trace.name_moves import name_findings
from qinglan.lineage.trace.paid_answers import check_journals
from qinglan.lineage.trace.release_folder import read_figures
from qinglan.lineage.trace.walk import Graph, findings_of, walk


class Audit(NamedTuple):
    target: str
    kind: Kind
    name: str
    """Name of a release, as tenant/model."""

    tenant: str
    digest: str
    """The digest of a release's folder."""

    verdict: AuditVerdict
    findings: tuple[Finding, ...]
    """Findings whose state is neither verified nor attested."""

    graph: Graph
    overrides: tuple[Override, ...] = ()
    """Signed overrides that are stored beside the release."""

    rollouts: tuple[CheckedRollout, ...] = ()
    """Signed histories of the release's rollouts, which are stored beside it."""

    changed_notes: tuple[str, ...] = ()
    """Names of the notes stored beside the release whose bytes were changed."""

    remarks: tuple[str, ...] = ()
    """Changes in a run's `files/` that are not faults, such as a sheet that a person filled in."""

    judged_models: int | None = None
    """Number of models that the release's locked test has judged, as its evaluation records; None if not counted."""


def audit(
    target: str,
    policy: TrustPolicy,
    *,
    store: str = "",
    files: Sequence[Path] = (),
    name: str = "",
    only_bytes: bool = False,
    now: datetime | None = None,
) -> Audit:
    """Audit a target. With `only_bytes`, an artifact counts as missing if its bytes are not here to compare."""
    with open_target(target, store, files) as opened:
        return audit_target(opened, policy, name, only_bytes, now)


def audit_target(
    target: AuditTarget,
    policy: TrustPolicy,
    name: str = "",
    only_bytes: bool = False,
    now: datetime | None = None,
) -> Audit:
    now = now or datetime.now(UTC)
    graph = walk(target.starts, target.evidence, policy, target.tenant, now=now, until=target.until)
    if only_bytes:
        graph = without_attestations(graph)
    files = []
    if target.release is not None:
        files = check_release(target.release, policy, name or target.name, target.absent)
    rollouts = tuple(read_rollout_notes(target.notes, policy, target.digest, target.tenant, now))
    findings = (
        *target.findings,
        *(name_findings(target.claim, policy, now) if target.claim else ()),
        *files,
        *findings_of(graph),
        *check_journals(target.evidence, [step.statement for step in graph.steps.values()]),
        *note_findings(target.changed_notes, rollouts),
    )
    faults = tuple(dict.fromkeys(finding for finding in findings if finding.state in FAULTS))
    return Audit(
        target.label,
        target.kind,
        target.name,
        target.tenant,
        target.digest,
        verdict_of(finding.state for finding in faults),
        faults,
        graph,
        tuple(read_overrides(target.notes, policy, target.digest, target.tenant, now)),
        rollouts,
        target.changed_notes,
        target.remarks,
        mapping_or_empty(read_figures(target.release).get("test_uses")).get("count"),
    )


def without_attestations(graph: Graph) -> Graph:
    """Return the graph with every attested artifact marked missing, for an auditor who wants to compare all bytes."""
    why = "its digest is signed, but its bytes are not here to compare"
    things = {
        digest: thing._replace(state="missing", why=why) if thing.state == "attested" else thing
        for digest, thing in graph.things.items()
    }
    return graph._replace(things=things)


def audit_error(result: Audit) -> QinglanError | None:
    """Return the error for an incomplete or altered audit; None if it is intact."""
    if result.verdict == "intact":
        return None
    faults = sorted(result.findings, key=lambda fault: WORST_FIRST.index(fault.state))
    first = "; ".join(f"{fault.what}: {fault.why}" for fault in faults[:3])
    more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    message = f"{result.target}: {first}{more}. {next_step(result)}"
    return AlteredError(message) if result.verdict == "altered" else IncompleteAuditError(message)


def next_step(result: Audit) -> str:
    """Return advice on the next step for the reader of the audit."""
    states = {finding.state for finding in result.findings}
    grave = {finding.what for finding in result.findings if finding.state in GRAVE}
    counts_from = result.graph.counts_from
    if grave == {DATES} and counts_from and "missing" in states:
        return (
            f"Do not deploy it before {counts_from:%F %T}Z: its dates are not right. Name the folder of the "
            "missing files with --files, or run their stages again."
        )
    if grave == {DATES} and counts_from:
        return f"Do not deploy it before {counts_from:%F %T}Z: its bytes and signatures are right, its dates are not."
    if "altered" in states:
        return "Do not deploy it: copy the bytes again from where they were made, or make them again."
    if "untrusted" in states:
        return (
            "Find out whose key that is (`qinglan keys list`), or name your organisation's trust policy with --trust."
        )
    if "missing" in states:
        return "Name the folder of the missing files with --files, or run their stages again."
    return "Nothing needs to be done."


def judged_models_line(result: Audit) -> str:
    count = result.judged_models
    return f"Models that its locked test has judged: {count}" if count else ""


def as_json(result: Audit) -> dict[str, Any]:
    graph = result.graph
    steps = []
    for step in graph.steps.values():
        statement = step.statement
        parts = {"made": _parts_json(statement.made), "used": _parts_json(statement.used)}
        fields = {name: getattr(step, name) for name in ("id", "state", "why", "signer", "where")}
        steps.append({**fields, "statement": {**statement._asdict(), **parts}})
    return {
        **{key: getattr(result, key) for key in ("target", "kind", "name", "tenant", "digest", "verdict")},
        "next": next_step(result),
        "judged_models": result.judged_models,
        "counts": counts(graph),
        "findings": [finding._asdict() for finding in result.findings],
        "remarks": list(result.remarks),
        "overrides": [override._asdict() for override in result.overrides],
        "rollouts": [{**item._asdict(), "statement": item.statement._asdict()} for item in result.rollouts],
        "starts": list(graph.starts),
        "things": [{**thing._asdict(), "about": dict(thing.about)} for thing in graph.things.values()],
        "steps": steps,
    }


def counts(graph: Graph) -> dict[str, int]:
    """Count the artifacts in each state, the worst state first."""
    states = [thing.state for thing in graph.things.values()]
    return {state: states.count(state) for state in WORST_FIRST}


def _parts_json(parts: Iterable[ArtifactRef]) -> list[dict[str, Any]]:
    return [{**part._asdict(), "about": dict(part.about)} for part in parts]
