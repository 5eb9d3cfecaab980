"""A ModelRollout as an object of the API server.

The deploy stage writes one, the rollout's controller carries it out. What both must know of
it is here, as plain data; manifests/platform/modelrollout.yaml says what is admitted.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

GROUP, VERSION, PLURAL = "qinglan.dev", "v1alpha1", "modelrollouts"
KIND = "ModelRollout"
SHADOW_HEADER = "x-qinglan-shadow"
"""Of a question that no user waits for: the canary counts it apart, and keeps no payload of it."""

Object = Mapping[str, Any]


def rollout_number(rollout: Object) -> int:
    """A service's rollouts are counted: rewriter-7 is the seventh. 0: of another making."""
    service, name = rollout["spec"]["inferenceService"], rollout["metadata"]["name"]
    found = re.fullmatch(rf"{re.escape(service)}-([1-9]\d*)", name)
    return int(found[1]) if found else 0


def rollouts_of_service(rollouts: Iterable[Object], service: str) -> list[Object]:
    """In the order in which they were made."""
    own = [one for one in rollouts if one["spec"]["inferenceService"] == service]
    return sorted(own, key=lambda one: (rollout_number(one), one["metadata"].get("creationTimestamp", "")))


def rollout_outcome(rollout: Object) -> str:
    """Promoted, RolledBack, Refused or Aborted; "" while it is under way."""
    return str((rollout.get("status") or {}).get("outcome") or "")


def is_under_way(rollout: Object) -> bool:
    return (rollout.get("status") or {}).get("phase") != "Done"


def next_rollout(rollouts: Iterable[Object]) -> Object | None:
    """Of one InferenceService's: the oldest that has not ended."""
    waiting = [one for one in rollouts if is_under_way(one)]
    return min(
        waiting, key=lambda one: (one["metadata"].get("creationTimestamp", ""), rollout_number(one)), default=None
    )


def deployed_uris(rollouts: Iterable[Object]) -> set[str]:
    """The URIs that these rollouts, all of one InferenceService, have put there, or gone back to.

    A canary counts while its rollout is under way: one that has ended otherwise than Promoted has left nothing there,
    and one that was not verified yet has asked for nothing. The stable model is the one that was there, verified.
    """
    found = set()
    for one in rollouts:
        status = one.get("status") or {}
        if status.get("phase", "Verify") == "Verify" or rollout_outcome(one) == "Refused":
            continue
        if rollout_outcome(one) == "Promoted" or is_under_way(one):
            found.add(str(one["spec"]["release"]["uri"]))
        if stable := (status.get("stable") or {}).get("uri"):
            found.add(str(stable))
    return found


def describe_rollout(rollout: Object) -> str:
    """Where it is, for a message."""
    status = rollout.get("status") or {}
    return f"{status.get('phase', 'not begun')}, {status.get('percent', 0)} % of the traffic"


def rollout_object(namespace: str, number: int, spec: Mapping[str, Any]) -> dict[str, Any]:
    """No annotations: KServe copies those of its own objects to pods, and a rollout needs none."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {
            "name": f"{spec['inferenceService']}-{number}",
            "namespace": namespace,
            "labels": {"app.kubernetes.io/part-of": "qinglan"},
        },
        "spec": dict(spec),
    }
