"""One reconcile: read, decide, write the state, act. Whatever fails, the next one reads the present state again."""

from typing import Literal

from qinglan.errors import ConflictError, OutageError
from serving.rollout.decide import decide
from serving.rollout.decision_context import Observation
from serving.rollout.ports import Ports, Proof, RolloutSnapshot, ServiceSnapshot, Window

ReconcileResult = Literal["done", "waited", "acted", "again", "unreachable", "follower"]


def reconcile(ports: Ports) -> ReconcileResult:
    """Make at most one write to the ledger, and then at most one to the InferenceService.

    The ledger comes first, at the version that was read: a controller that loses that race does not act, and one that
    dies between the two writes leaves an intent behind. `again` means that somebody else wrote meanwhile.
    """
    if not ports.leads():
        return "follower"
    try:
        snapshot = ports.ledger.read()
        if snapshot.state.phase == "Done":
            return "done"
        service = ports.target.read()
        measured, proofs = _read_measurements(ports, snapshot), _verify_releases(ports, snapshot, service)
        decision = decide(Observation(snapshot.spec, snapshot.state, service, measured, proofs), ports.now())
        if decision.state != snapshot.state:
            ports.ledger.write(decision.state, snapshot.resource_version)
        if decision.desired is None:
            return "done" if decision.state.phase == "Done" else "waited"
        ports.target.write(decision.desired, service.resource_version)
        return "acted"
    except ConflictError:
        return "again"
    except OutageError:
        return "unreachable"


def _read_measurements(ports: Ports, snapshot: RolloutSnapshot) -> Window | None:
    """The window since the cursor; None without an answer, which never counts in the canary's favour."""
    stable = snapshot.state.stable
    if snapshot.state.phase != "Analyse" or stable is None:
        return None
    try:
        return ports.evidence.since(snapshot.spec.release.version, stable.version, snapshot.state.cursor)
    except OutageError:
        return None


def _verify_releases(
    ports: Ports, snapshot: RolloutSnapshot, service: ServiceSnapshot
) -> tuple[Proof, Proof | None] | None:
    if snapshot.state.phase != "Verify" or snapshot.spec.abort:
        return None
    try:
        stable = ports.releases.prove(service.desired.uri) if service.rolled_out else None
        return ports.releases.prove(snapshot.spec.release.uri), stable
    except OutageError:
        return None
