"""Builds a ServiceSnapshot from the objects of the API server."""

from serving.rollout.cluster import knative, standard_mode
from serving.rollout.cluster.inference_service import (
    ServiceObjects,
    deployment_mode,
    desired_model,
    last_editor,
    spec_fingerprint,
)
from serving.rollout.ports import ServiceSnapshot


def service_snapshot(objects: ServiceObjects, standard_canary: bool = False) -> ServiceSnapshot:
    """The snapshot; the deployment mode decides which objects it is read from."""
    service, mode = objects.service, deployment_mode(objects.service)
    reader = knative if mode == "Serverless" else standard_mode
    meta = service["metadata"]
    return ServiceSnapshot(
        resource_version=str(meta["resourceVersion"]),
        generation=int(meta["generation"]),
        settled=reader.settled(objects),
        desired=desired_model(service),
        rest=spec_fingerprint(service),
        newest=reader.newest(objects),
        rolled_out=reader.rolled_out(objects),
        traffic=reader.traffic(objects),
        mode=mode,
        unsupported=_unsupported(objects, standard_canary),
        editor=last_editor(service),
        uid=str(meta["uid"]),
    )


def _unsupported(objects: ServiceObjects, standard_canary: bool) -> str:
    spec = objects.service["spec"]
    if not desired_model(objects.service).uri:
        return "it serves by another field than spec.predictor.model.storageUri: no release can be read from it"
    if spec.get("transformer"):
        return "a separate transformer and a canary do not mix in KServe: put it into the predictor's pods"
    if len(spec.get("canary") or ()) > 1:
        return "it has more than one canary already: end them first"
    if deployment_mode(objects.service) == "Standard" and not standard_canary:
        return standard_mode.UNSUPPORTED_REASON
    return ""
