"""Decide which rollout a deployment creates, if any: pure functions of the existing rollouts and the requested
spec."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from qinglan.errors import ConflictError, GateHeldError
from qinglan.kubernetes.model_rollouts import (
    Object,
    describe_rollout,
    rollout_number,
    rollout_object,
    rollout_outcome,
    rollouts_of_service,
)


class RolloutDecision(NamedTuple):
    name: str
    create: dict[str, Any] | None
    """Rollout to create; None if the release already has a rollout."""

    message: str


def decide_rollout(rollouts: Iterable[Object], namespace: str, spec: Mapping[str, Any]) -> RolloutDecision:
    """Return the next rollout of the service, or the rollout that this release already has.

    Raises a ConflictError if another rollout of the service is in progress, and a GateHeldError if this release was
    rolled back, since it is not tried again automatically. Two deployments at the same time choose the same name, and
    the API server accepts only one of them.
    """
    service, release = spec["inferenceService"], spec["release"]
    same_service = rollouts_of_service(rollouts, service)
    last = same_service[-1] if same_service else None
    if last and last["spec"]["release"]["uri"] == release["uri"]:
        return _again(last)
    for rollout in same_service:
        if not rollout_outcome(rollout):
            raise ConflictError(
                f"{_name(rollout)} is bringing {_digest(rollout)} to {service} ({describe_rollout(rollout)}). "
                "One at a time: wait for it (`qinglan rollout watch`), "
                "or end it (`qinglan rollout abort`), then run again."
            )
    created = rollout_object(namespace, max(map(rollout_number, same_service), default=0) + 1, spec)
    return RolloutDecision(
        _name(created), created, f"{release['name']} {release['digest'][:12]} goes to {service} by {_name(created)}"
    )


def _again(last: Object) -> RolloutDecision:
    """Return the decision for a release that the last rollout has brought or is bringing: nothing is created."""
    outcome, name = rollout_outcome(last), _name(last)
    if outcome not in ("", "Promoted"):
        reasons = "; ".join((last.get("status") or {}).get("reasons") or ["it gave no reason"])
        raise GateHeldError(
            f"{name} has tried this release, and ended {outcome}: {reasons}. Nothing tries it again by itself: train "
            f"another, or delete the modelrollout {name} and run again."
        )
    progress = "serves all of the traffic" if outcome else f"is on its way ({describe_rollout(last)})"
    return RolloutDecision(name, None, f"{_digest(last)} {progress} by {name}: nothing to do")


def _name(rollout: Object) -> str:
    return str(rollout["metadata"]["name"])


def _digest(rollout: Object) -> str:
    return str(rollout["spec"]["release"]["digest"][:12])
