"""One look: read, decide, write down, act. Whatever fails, the next look reads what is there and goes on."""

from typing import Literal

from qinglan.errors import ConflictError, OutageError
from serving.rollout.decide import decide
from serving.rollout.decision_context import Observation
from serving.rollout.ports import Ports, Proof, RolloutSnapshot, ServiceSnapshot, Window

ReconcileResult = Literal["done", "waited", "acted", "again", "unreachable", "follower"]


def reconcile(ports: Ports) -> ReconcileResult:
    """At most one write to the ledger, and then at most one to the InferenceService.

    The ledger comes first, at the version that was read: who loses that race does not act at all, and who dies
    between the two leaves an intent behind. `again` means that somebody else wrote meanwhile.
    """
    if not ports.lease.held():
        return "follower"
    try:
        return _reconcile(ports)
    except ConflictError:
        return "again"
    except OutageError:
        return "unreachable"


def _reconcile(ports: Ports) -> ReconcileResult:
    entry = ports.ledger.read()
    if entry.state.phase == "Done":
        return "done"
    served = ports.target.read()
    seen = Observation(
        entry.spec, entry.state, served, _read_measurements(ports, entry), _verify_releases(ports, entry, served)
    )
    decision = decide(seen, ports.clock.now())
    if decision.state != entry.state:
        ports.ledger.write(decision.state, entry.resource_version)
    if decision.asked is None:
        return "done" if decision.state.phase == "Done" else "waited"
    ports.target.write(decision.asked, served.resource_version)
    return "acted"


def _read_measurements(ports: Ports, entry: RolloutSnapshot) -> Window | None:
    """No answer is no data, and no data is never good news."""
    stable = entry.state.stable
    if entry.state.phase != "Analyse" or stable is None:
        return None
    try:
        return ports.evidence.since(entry.spec.release.version, stable.version, entry.state.cursor)
    except OutageError:
        return None


def _verify_releases(
    ports: Ports, entry: RolloutSnapshot, served: ServiceSnapshot
) -> tuple[Proof, Proof | None] | None:
    if entry.state.phase != "Verify" or entry.spec.abort:
        return None
    try:
        stable = ports.releases.prove(served.asked.uri) if served.rolled_out else None
        return ports.releases.prove(entry.spec.release.uri), stable
    except OutageError:
        return None
