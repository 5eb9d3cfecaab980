"""Reconcile a rollout once: read, decide, write the state, act. After a failure, the next reconcile starts again."""

from typing import Literal

from qinglan.errors import ConflictError, OutageError
from serving.rollout.decide import decide
from serving.rollout.decision_context import DecisionContext
from serving.rollout.ports import Ports, Proof, RolloutSnapshot, ServiceSnapshot, Window

ReconcileResult = Literal["done", "waited", "acted", "again", "unreachable", "follower"]


def reconcile(ports: Ports) -> ReconcileResult:
    """Write at most once to the ledger (the ModelRollout), then at most once to the InferenceService.

    Returns the result; `again` means that another program wrote meanwhile. The ledger is written first, at the
    version that was read. So a controller that loses this race does not act, and a controller that dies between the
    two writes leaves its intent in the ledger.
    """
    if not ports.leads():
        return "follower"
    try:
        snapshot = ports.ledger.read()
        if snapshot.state.phase == "Done":
            return "done"
        service = ports.target.read()
        window, proofs = _read_measurements(ports, snapshot), _verify_releases(ports, snapshot, service)
        decision = decide(DecisionContext(snapshot.spec, snapshot.state, service, window, proofs, ports.now()))
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
    """Read the window since the cursor; None outside the phase Analyse, or if there is no answer."""
    stable = snapshot.state.stable
    if snapshot.state.phase != "Analyse" or stable is None:
        return None
    try:
        return ports.count_since(snapshot.spec.release.version, stable.version, snapshot.state.cursor)
    except OutageError:
        return None


def _verify_releases(
    ports: Ports, snapshot: RolloutSnapshot, service: ServiceSnapshot
) -> tuple[Proof, Proof | None] | None:
    if snapshot.state.phase != "Verify" or snapshot.spec.abort:
        return None
    try:
        stable = ports.prove(service.desired.uri) if service.rolled_out else None
        return ports.prove(snapshot.spec.release.uri), stable
    except OutageError:
        return None
