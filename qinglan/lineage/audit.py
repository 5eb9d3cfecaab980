"""Whether something is what it is said to be, and comes from what it is said to come from.

found = audit("runs/demo/fivedoctors", load_trust(Path("trust.yaml")))
found.verdict     # intact, incomplete or altered
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.errors import AlteredError, DataError, IncompleteAuditError, QinglanError
from qinglan.lineage.audit_targets import AuditTarget, Kind, check_files, open_target
from qinglan.lineage.findings import Finding
from qinglan.lineage.graph import AuditVerdict, Graph, Step, findings_of, verdict_of
from qinglan.lineage.journal_check import check_journals
from qinglan.lineage.override import Override, read_override
from qinglan.lineage.rollout_statement import CheckedRollout, read_rollout_notes
from qinglan.lineage.rollout_statement import findings_of_rollouts as rollout_findings
from qinglan.lineage.trust import TrustPolicy
from qinglan.lineage.walk import walk


class Audit(NamedTuple):
    target: str
    kind: Kind
    name: str
    """tenant/model, of a release."""

    tenant: str
    digest: str
    """Of a release's folder."""

    verdict: AuditVerdict
    findings: tuple[Finding, ...]
    """Everything that is neither verified nor attested."""

    graph: Graph
    overrides: tuple[Override, ...] = ()
    """Who let it pass although something was missing."""

    rollouts: tuple[CheckedRollout, ...] = ()
    """How its ways to its users ended, by the statements beside it."""


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
    """Everything that can be said of a target; with `only_bytes` nothing is taken on a signature's word."""
    with open_target(target, store, files, name) as one:
        return audit_target(one, policy, name, only_bytes, now)


def audit_target(
    one: AuditTarget, policy: TrustPolicy, name: str = "", only_bytes: bool = False, now: datetime | None = None
) -> Audit:
    now = now or datetime.now(UTC)
    graph = walk(one.starts, one.evidence, policy, one.tenant, now=now, until=one.until)
    if only_bytes:
        graph = without_attestations(graph)
    own = (finding for finding in check_files(one, policy, name or one.name))
    rollouts = tuple(read_rollout_notes(one.notes, policy, one.digest, one.tenant, now))
    found = (*one.findings, *own, *findings_of(graph), *check_journals(one.evidence), *rollout_findings(rollouts))
    findings = tuple(dict.fromkeys(finding for finding in found if finding.state not in ("verified", "attested")))
    verdict = verdict_of(finding.state for finding in findings)
    overrides = tuple(read_overrides(one, policy, now))
    return Audit(one.label, one.kind, one.name, one.tenant, one.digest, verdict, findings, graph, overrides, rollouts)


def without_attestations(graph: Graph) -> Graph:
    """The graph of an auditor to whom a signature is no substitute for the bytes."""
    why = "a signature speaks for it; its bytes are not at hand"
    things = {
        digest: one._replace(state="missing", why=why) if one.state == "attested" else one
        for digest, one in graph.things.items()
    }
    return graph._replace(things=things)


def read_overrides(one: AuditTarget, policy: TrustPolicy, now: datetime) -> Iterable[Override]:
    """Of this release; a note that is none, or that nobody may have signed, opens no door and is passed over."""
    for note in one.notes:
        try:
            override = read_override(note, policy, one.tenant, now)
        except DataError:
            continue
        if override.digest == one.digest:
            yield override


def audit_error(found: Audit) -> QinglanError | None:
    """What an audit that is not intact ends with."""
    if found.verdict == "intact":
        return None
    first = "; ".join(f"{one.what}: {one.why}" for one in _worst_first(found.findings)[:3])
    more = len(found.findings) - 3
    said = f"{found.target}: {first}{f'; and {more} more' if more > 0 else ''}. {next_step(found)}"
    return AlteredError(said) if found.verdict == "altered" else IncompleteAuditError(said)


def next_step(found: Audit) -> str:
    """What to do about it."""
    states = {one.state for one in found.findings}
    if "altered" in states:
        return "Deploy nothing of it: take the bytes from where they were made, or make them anew."
    if "untrusted" in states:
        return "See whose key that is (`qinglan keys list`), or give the house's policy by --trust."
    if "missing" in states:
        return "Name where the missing ones are kept with --files, or run their stages again."
    return "Nothing is to be done."


def as_json(found: Audit) -> dict[str, Any]:
    """All of it, in plain values."""
    graph = found.graph
    return {
        **{key: getattr(found, key) for key in ("target", "kind", "name", "tenant", "digest", "verdict")},
        "next": next_step(found),
        "counts": counts(graph),
        "findings": [one._asdict() for one in found.findings],
        "overrides": [one._asdict() for one in found.overrides],
        "rollouts": [{**one._asdict(), "told": one.told._asdict()} for one in found.rollouts],
        "starts": list(graph.starts),
        "things": [{**one._asdict(), "about": dict(one.about)} for one in graph.things.values()],
        "steps": [_step(one) for one in graph.steps.values()],
    }  # fmt: skip


def counts(graph: Graph) -> dict[str, int]:
    """Of things by state, the gravest first."""
    found = dict.fromkeys(("altered", "untrusted", "missing", "attested", "verified"), 0)
    for one in graph.things.values():
        found[one.state] += 1
    return found


def _step(one: Step) -> dict[str, Any]:
    statement = one.statement._asdict()
    parts = {name: _parts(statement[name]) for name in ("made", "used")}
    own = {name: getattr(one, name) for name in ("id", "state", "why", "signer", "where")}
    return {**own, "statement": {**statement, **parts}}


def _parts(parts: Iterable[Any]) -> list[dict[str, Any]]:
    return [{**one._asdict(), "about": dict(one.about)} for one in parts]


def _worst_first(findings: Sequence[Finding]) -> list[Finding]:
    order = ("altered", "untrusted", "missing")
    return sorted(findings, key=lambda one: order.index(one.state) if one.state in order else len(order))
