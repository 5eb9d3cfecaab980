"""Read a Standard InferenceService: its Deployments, and `spec.canary` as in the source of KServe 0.21.

**This mode has never run on a cluster with KServe 0.21.** KServe 0.20, which was tried, creates the canary's pods but
sends them no traffic. So a rollout in this mode is refused, unless the option --standard-canary says that the
cluster's KServe splits the traffic.
"""

from serving.rollout.cluster.inference_service import (
    Object,
    ServiceObjects,
    condition,
    condition_true,
    desired_model,
    fetched_uri,
    storage_uri,
)
from serving.rollout.ports import Revision
from serving.rollout.state import DesiredModel

STABLE_ONLY_FIELDS = (
    "minReplicas",
    "maxReplicas",
    "scaleTarget",
    "scaleMetric",
    "autoScaling",
    "deploymentStrategy",
    "name",
)
"""Fields that KServe refuses in a canary, which has a fixed number of pods."""
FAILURE_REASONS = (
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "CreateContainerConfigError",
    "RunContainerError",
)

UNSUPPORTED_REASON = (
    "in Standard mode KServe 0.20 makes a canary's pods and sends them no traffic: serve it in Serverless mode, or, "
    "with KServe 0.21 or newer and the Gateway API, give the controller --standard-canary"
)


def newest(objects: ServiceObjects) -> Revision | None:
    name, deployment = _newest_deployment(objects)
    return _read_revision(name, deployment, objects) if deployment else None


def rolled_out(objects: ServiceObjects) -> Revision | None:
    """Return the stable Deployment; None until one of its pods has served."""
    name = f"{objects.service['metadata']['name']}-predictor"
    deployment = objects.deployments.get(name)
    if deployment is None or not _has_served(deployment):
        return None
    return _read_revision(name, deployment, objects)


def traffic(objects: ServiceObjects) -> dict[str, int]:
    """Return the percent of the traffic by the URI of the model.

    A stable Deployment whose pods are being replaced is left out, because it serves its old and its new model.
    """
    stable, shares = rolled_out(objects), {}
    statuses = {status["name"]: status for status in _statuses(objects.service)}
    for canary in objects.service["spec"].get("canary") or ():
        status = statuses.get(canary["predictor"].get("name", ""), {})
        shares[storage_uri(canary["predictor"])] = int(status.get("trafficPercent") or 0)
    if stable is not None and stable.ready:
        shares[stable.uri] = shares.get(stable.uri, 0) + 100 - sum(shares.values())
    return {uri: percent for uri, percent in shares.items() if percent}


def settled(objects: ServiceObjects) -> bool:
    """True if KServe and the Deployments have carried out the spec."""
    spec_shares = {
        canary["predictor"]["name"]: canary["trafficPercent"]
        for canary in objects.service["spec"].get("canary") or ()
    }
    status_shares = {canary["name"]: canary.get("trafficPercent", 0) for canary in _statuses(objects.service)}
    _, deployment = _newest_deployment(objects)
    desired_uri = desired_model(objects.service).uri
    return (
        spec_shares == status_shares and deployment is not None and fetched_uri(_template(deployment)) == desired_uri
    )


def spec_patch(service: Object, desired: DesiredModel) -> dict[str, object]:
    """Build the merge patch of the spec.

    With a percent, it adds the desired model as a canary. Without one, it makes the desired model the stable one and
    removes the canary.
    """
    if desired.percent is None:
        return {"predictor": {"model": {"storageUri": desired.uri}}, "canary": None}
    predictor = service["spec"]["predictor"]
    fields = {name: value for name, value in predictor.items() if name not in STABLE_ONLY_FIELDS}
    model = {**fields["model"], "name": "", "storageUri": desired.uri}  # the CRD requires a name
    canary = {**fields, "name": canary_name(desired.uri), "model": model}
    return {"canary": [{"predictor": canary, "trafficPercent": desired.percent}]}


def canary_name(uri: str) -> str:
    """Name of the canary, derived from its release, so that the same canary is never created twice."""
    return f"c-{uri.partition('/releases/')[2][:8]}"


def _newest_deployment(objects: ServiceObjects) -> tuple[str, Object | None]:
    service = objects.service["metadata"]["name"]
    canary = next((entry["predictor"].get("name", "") for entry in objects.service["spec"].get("canary") or ()), "")
    name = f"{service}-{canary}-predictor" if canary else f"{service}-predictor"
    return name, objects.deployments.get(name)


def _statuses(service: Object) -> list[Object]:
    return list(service.get("status", {}).get("canaryStatuses") or ())


def _template(deployment: Object) -> Object:
    template: Object = deployment["spec"]["template"]
    return template


def _read_revision(name: str, deployment: Object, objects: ServiceObjects) -> Revision:
    """Read a Deployment. It is ready by its pod counts, because its condition stays True while new pods crash."""
    status, replicas = deployment.get("status", {}), deployment["spec"].get("replicas", 1)
    observed = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    counts = {status.get(field, 0) for field in ("replicas", "updatedReplicas", "availableReplicas")}
    ready = observed and replicas > 0 and counts == {replicas}
    return Revision(name, fetched_uri(_template(deployment)), ready, "" if ready else _failure(name, objects))


def _has_served(deployment: Object) -> bool:
    rolled = condition(deployment, "Progressing").get("reason") == "NewReplicaSetAvailable"
    return (
        rolled
        or condition_true(deployment, "Available")
        or bool(deployment.get("status", {}).get("availableReplicas"))
    )


def _failure(name: str, objects: ServiceObjects) -> str:
    for pod in objects.pods:
        if not pod["metadata"]["name"].startswith(f"{name}-"):
            continue
        status = pod.get("status", {})
        for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            waiting = container.get("state", {}).get("waiting") or {}
            if waiting.get("reason") in FAILURE_REASONS:
                return ": ".join(filter(None, (waiting["reason"], waiting.get("message", ""))))
    return ""
