"""A Standard InferenceService: Deployments, and `spec.canary`, as the source of KServe 0.21 has it.

**Never run**: 0.20, which was, makes a canary's pods and sends them no traffic. So it is refused, until whoever runs
the cluster says that its KServe splits (`--standard-canary`).
"""

from serving.rollout.cluster.reading import Object, Objects, asked_of, condition, source_of, true, uri_of
from serving.rollout.ports import Revision
from serving.rollout.state import Asked

NOT_A_CANARYS = (
    "minReplicas",
    "maxReplicas",
    "scaleTarget",
    "scaleMetric",
    "autoScaling",
    "deploymentStrategy",
    "name",
)
"""A canary has a fixed number of pods, and KServe refuses one with these."""
WRONG = ("CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "RunContainerError")

UNSPLIT = (
    "in Standard mode KServe 0.20 makes a canary's pods and sends them no traffic: serve it in Serverless mode, or, "
    "with KServe 0.21 or newer and the Gateway API, give the controller --standard-canary"
)


def newest(objects: Objects) -> Revision | None:
    name, deployment = _latest(objects)
    return _read(name, deployment, objects) if deployment else None


def rolled_out(objects: Objects) -> Revision | None:
    """The stable Deployment, once any of its pods has served."""
    name = f"{objects.service['metadata']['name']}-predictor"
    deployment = objects.deployments.get(name)
    if deployment is None or not _came(deployment):
        return None
    return _read(name, deployment, objects)


def traffic(objects: Objects) -> dict[str, int]:
    """Per cent by URI: a Deployment that is being rolled out answers with both of its models, and is not counted."""
    stable, shares = rolled_out(objects), {}
    for canary, told in _told(objects.service):
        shares[uri_of(canary["predictor"])] = int(told.get("trafficPercent") or 0)
    if stable is not None and stable.ready:
        shares[stable.uri] = shares.get(stable.uri, 0) + 100 - sum(shares.values())
    return {uri: percent for uri, percent in shares.items() if percent}


def settled(objects: Objects) -> bool:
    """Whether KServe and the Deployments have come to the spec that was read."""
    told = {one["predictor"]["name"]: one["trafficPercent"] for one in objects.service["spec"].get("canary") or ()}
    seen = {one["name"]: one.get("trafficPercent", 0) for one in _statuses(objects.service)}
    _, deployment = _latest(objects)
    asked = asked_of(objects.service).uri
    return told == seen and deployment is not None and source_of(_template(deployment)) == asked


def patch(service: Object, asked: Asked) -> dict[str, object]:
    """The merge patch of the spec: a canary beside what is served, or in its place."""
    if asked.percent is None:
        return {"predictor": {"model": {"storageUri": asked.uri}}, "canary": None}
    predictor = service["spec"]["predictor"]
    kept = {name: one for name, one in predictor.items() if name not in NOT_A_CANARYS}
    model = {**kept["model"], "name": "", "storageUri": asked.uri}  # the CRD wants a name
    canary = {**kept, "name": name_of(asked.uri), "model": model}
    return {"canary": [{"predictor": canary, "trafficPercent": asked.percent}]}


def name_of(uri: str) -> str:
    """By its release, so that the same one is never made twice."""
    return f"c-{uri.partition('/releases/')[2][:8]}"


def _latest(objects: Objects) -> tuple[str, Object | None]:
    service = objects.service["metadata"]["name"]
    canary = next((one["predictor"].get("name", "") for one in objects.service["spec"].get("canary") or ()), "")
    name = f"{service}-{canary}-predictor" if canary else f"{service}-predictor"
    return name, objects.deployments.get(name)


def _statuses(service: Object) -> list[Object]:
    return list(service.get("status", {}).get("canaryStatuses") or ())


def _told(service: Object) -> list[tuple[Object, Object]]:
    statuses = {one["name"]: one for one in _statuses(service)}
    canaries = service["spec"].get("canary") or ()
    return [(one, statuses.get(one["predictor"].get("name", ""), {})) for one in canaries]


def _template(deployment: Object) -> Object:
    found: Object = deployment["spec"]["template"]
    return found


def _read(name: str, deployment: Object, objects: Objects) -> Revision:
    """Ready is read from the counts: the condition stays True while new pods crash beside old ones."""
    status, wanted = deployment.get("status", {}), deployment["spec"].get("replicas", 1)
    observed = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    counts = {status.get(which, 0) for which in ("replicas", "updatedReplicas", "availableReplicas")}
    ready = observed and wanted > 0 and counts == {wanted}
    return Revision(name, source_of(_template(deployment)), ready, "" if ready else _failure(name, objects))


def _came(deployment: Object) -> bool:
    rolled = condition(deployment, "Progressing").get("reason") == "NewReplicaSetAvailable"
    return rolled or true(deployment, "Available") or bool(deployment.get("status", {}).get("availableReplicas"))


def _failure(name: str, objects: Objects) -> str:
    for pod in objects.pods:
        if not pod["metadata"]["name"].startswith(f"{name}-"):
            continue
        status = pod.get("status", {})
        for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            waiting = one.get("state", {}).get("waiting") or {}
            if waiting.get("reason") in WRONG:
                return ": ".join(filter(None, (waiting["reason"], waiting.get("message", ""))))
    return ""
