"""The InferenceService that a rollout makes where there is none yet."""

from collections.abc import Mapping
from typing import Any

SERVICE_ACCOUNT, STORAGE_CONTAINER = "qinglan-serving", "qinglan-release"
"""The account that a model's pods run as, and the storage container that verifies what they serve."""

TAG_ROUTING = "serving.kserve.io/enable-tag-routing"
"""KServe's: Knative gives the newest revision a route of its own, whatever its share."""

MODES = {"Serverless": "Knative", "Standard": "Standard"}
"""A rollout's mode, and what KServe calls it."""

Object = Mapping[str, Any]


def first_inference_service(rollout: Object) -> dict[str, Any]:
    """The InferenceService that a rollout makes where there is none: its release, and all of the traffic.

    KServe gives a first deploy all of it whatever percent it names. The annotations are KServe's own, are there from
    the start and never change, since a changed one starts every pod anew.
    """
    spec = rollout["spec"]
    predictor_spec, standard = spec["predictor"], spec.get("mode") == "Standard"
    replicas = {name: predictor_spec[name] for name in ("minReplicas", "maxReplicas") if name in predictor_spec}
    model = {
        "modelFormat": {"name": predictor_spec["format"]},
        "runtime": predictor_spec["runtime"],
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
