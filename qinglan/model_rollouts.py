"""A ModelRollout as an object of the API server, and the first InferenceService that one asks for.

The deploy stage writes ModelRollouts and nothing else; the rollout's controller writes InferenceServices. What both
must know of these objects is here, as plain data; manifests/platform/modelrollout.yaml says what is admitted.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

GROUP, VERSION, PLURAL = "qinglan.dev", "v1alpha1", "modelrollouts"
KIND = "ModelRollout"
SERVICE_ACCOUNT, STORAGE_CONTAINER = "qinglan-serving", "qinglan-release"
"""Whom a model's pods run as, and the storage container that verifies what they serve."""

SHADOW_HEADER = "x-qinglan-shadow"
"""Of a question that no user waits for: the canary counts it apart, and keeps no payload of it."""

TAG_ROUTING = "serving.kserve.io/enable-tag-routing"
"""KServe's: Knative gives the newest revision a route of its own, whatever its share."""

MODES = {"Serverless": "Knative", "Standard": "Standard"}
"""A rollout's mode, and what KServe calls it."""

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


def first_inference_service(rollout: Object) -> dict[str, Any]:
    """The InferenceService that a rollout makes where there is none: its release, and all of the traffic.

    KServe gives a first deploy all of it whatever percent it names. The annotations are KServe's own, are there from
    the start and never change, since a changed one starts every pod anew.
    """
    spec = rollout["spec"]
    asked, standard = spec["predictor"], spec.get("mode") == "Standard"
    replicas = {name: asked[name] for name in ("minReplicas", "maxReplicas") if name in asked}
    model = {
        "modelFormat": {"name": asked["format"]},
        "runtime": asked["runtime"],
        "storageUri": spec["release"]["uri"],
    }
    predictor = {
        "serviceAccountName": SERVICE_ACCOUNT,
        "storageContainerName": STORAGE_CONTAINER,
        "automountServiceAccountToken": False,
        **replicas,
        "model": model,
    }
    if standard:  # Knative has no field for these two
        predictor["priorityClassName"] = "qinglan-online"
        model["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", "5"]}}}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": spec["inferenceService"],
            "namespace": rollout["metadata"]["namespace"],
            "labels": {"app.kubernetes.io/part-of": "qinglan"},
            "annotations": _annotations(spec.get("mode", "Auto")),
        },
        "spec": {"predictor": predictor},
    }


def _annotations(mode: str) -> dict[str, str]:
    """With Auto KServe deploys as the cluster is set up to. A canary's own route is the shadow's way to it."""
    deployed = {} if mode == "Auto" else {"serving.kserve.io/deploymentMode": MODES[mode]}
    if mode == "Standard":
        return {**deployed, "serving.kserve.io/autoscalerClass": "none"}
    return {**deployed, TAG_ROUTING: "true"}
