"""Build the InferenceService that a rollout creates if it does not exist yet."""

from collections.abc import Mapping
from typing import Any

SERVICE_ACCOUNT, STORAGE_CONTAINER = "qinglan-serving", "qinglan-release"
"""Service account of a model's pods, and storage container that fetches and verifies their release."""

TAG_ROUTING = "serving.kserve.io/enable-tag-routing"
"""KServe's annotation that gives the newest revision its own URL (tag route), whatever its traffic share."""

MODES = {"Serverless": "Knative", "Standard": "Standard"}
"""KServe's name for each mode of a rollout."""

Object = Mapping[str, Any]


def first_inference_service(rollout: Object) -> dict[str, Any]:
    """Build the InferenceService for a rollout's release.

    KServe gives a first model all of the traffic, whatever percent is requested. KServe's annotations are set now and
    never changed, because a changed annotation restarts every pod.
    """
    spec = rollout["spec"]
    predictor_spec, mode, standard = spec["predictor"], spec.get("mode", "Auto"), spec.get("mode") == "Standard"
    # With Auto, KServe uses the cluster's default mode.
    annotations = {} if mode == "Auto" else {"serving.kserve.io/deploymentMode": MODES[mode]}
    # The shadow reaches the canary through the tag route.
    annotations |= {"serving.kserve.io/autoscalerClass": "none"} if standard else {TAG_ROUTING: "true"}
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
        # A pod gets requests for a few seconds after its SIGTERM, until every proxy knows that it is terminating.
        # https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination
        predictor["priorityClassName"] = "qinglan-online"
        model["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", "5"]}}}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": spec["inferenceService"],
            "namespace": rollout["metadata"]["namespace"],
            "labels": {"app.kubernetes.io/part-of": "qinglan"},
            "annotations": annotations,
        },
        "spec": {"predictor": predictor},
    }
