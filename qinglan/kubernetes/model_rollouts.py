"""Functions over ModelRollouts, which are plain objects of the API server.

The deploy stage creates a ModelRollout, and the rollout's controller carries it out. Both use these functions.
The schema is in manifests/platform/modelrollout.yaml.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

GROUP, VERSION, PLURAL = "qinglan.dev", "v1alpha1", "modelrollouts"
KIND = "ModelRollout"

Object = Mapping[str, Any]


def rollout_number(rollout: Object) -> int:
    """Return a rollout's number within its service, such as 7 for `rewriter-7`; 0 if the name has another form."""
    service, name = rollout["spec"]["inferenceService"], rollout["metadata"]["name"]
    match = re.fullmatch(rf"{re.escape(service)}-([1-9]\d*)", name)
    return int(match[1]) if match else 0


def rollouts_of_service(rollouts: Iterable[Object], service: str) -> list[Object]:
    """Return the rollouts of one InferenceService, in the order of their numbers."""
    matching = [rollout for rollout in rollouts if rollout["spec"]["inferenceService"] == service]
    return sorted(
        matching, key=lambda rollout: (rollout_number(rollout), rollout["metadata"].get("creationTimestamp", ""))
    )


def rollout_outcome(rollout: Object) -> str:
    """Return a rollout's outcome: Promoted, RolledBack, Refused or Aborted; "" while the rollout is under way."""
    return str((rollout.get("status") or {}).get("outcome") or "")


def is_under_way(rollout: Object) -> bool:
    return (rollout.get("status") or {}).get("phase") != "Done"


def next_rollout(rollouts: Iterable[Object]) -> Object | None:
    """Return the oldest rollout that has not ended, or None. All rollouts must be of the same InferenceService."""
    waiting = [rollout for rollout in rollouts if is_under_way(rollout)]
    return min(
        waiting,
        key=lambda rollout: (rollout["metadata"].get("creationTimestamp", ""), rollout_number(rollout)),
        default=None,
    )


def deployed_uris(rollouts: Iterable[Object]) -> set[str]:
    """Return the URIs of the models that these rollouts of one InferenceService have deployed or rolled back to.

    A canary's URI is included from its verification until its rollout ends, and afterwards only if it was promoted.
    The stable model's URI is included once the canary is verified, unless the rollout was refused.
    """
    uris = set()
    for rollout in rollouts:
        status = rollout.get("status") or {}
        if status.get("phase", "Verify") == "Verify" or rollout_outcome(rollout) == "Refused":
            continue
        if rollout_outcome(rollout) == "Promoted" or is_under_way(rollout):
            uris.add(str(rollout["spec"]["release"]["uri"]))
        if stable := (status.get("stable") or {}).get("uri"):
            uris.add(str(stable))
    return uris


def describe_rollout(rollout: Object) -> str:
    """Describe the rollout's phase and its percentage of the traffic, for a message."""
    status = rollout.get("status") or {}
    return f"{status.get('phase', 'not begun')}, {status.get('percent', 0)} % of the traffic"


def rollout_object(namespace: str, number: int, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Build a ModelRollout to create. It has no annotations, because KServe copies annotations of objects to pods."""
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
