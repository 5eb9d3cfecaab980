"""Read an InferenceService: model and traffic share in its spec, its deployment mode, and its last editor.

knative.py and standard_mode.py read what is really served in the two deployment modes.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from serving.rollout.ports import DeploymentMode, ServiceSnapshot
from serving.rollout.state import DesiredModel

Object = Mapping[str, Any]

FIELD_MANAGER = "qinglan-rollout"
"""Name under which the API server records that this controller wrote a field (managedFields)."""

SOURCE_ANNOTATION = "internal.serving.kserve.io/storage-initializer-sourceuri"
"""Annotation in which KServe stores the URI that a pod's storage initialiser fetches."""

MODE_ANNOTATION = "serving.kserve.io/deploymentMode"
SERVERLESS = ("Knative", "Serverless")
DECIDING_ANNOTATIONS = ("serving.kserve.io/", "knative.dev/")
"""Parts of the names of annotations that influence what is served."""
CACHED = "internal.serving.kserve.io/localmodel"
"""Prefix of annotations that KServe's webhook derives from the storageUri."""

NO_SERVICE = ServiceSnapshot("", 0, True, DesiredModel(uri=""), "", None, None, {}, "Serverless")
"""Snapshot for an InferenceService that does not exist."""


class ServiceObjects(NamedTuple):
    """An InferenceService, with its revisions in Serverless mode, or its Deployments and pods in Standard mode."""

    service: Object
    revisions: Mapping[str, Object] = {}
    deployments: Mapping[str, Object] = {}
    pods: tuple[Object, ...] = ()


def deployment_mode(service: Object) -> DeploymentMode:
    """Return the deployment mode from the status or, if KServe has not written it there yet, from the annotation."""
    mode = service.get("status", {}).get("deploymentMode") or annotations(service).get(MODE_ANNOTATION) or "Knative"
    return "Serverless" if mode in SERVERLESS else "Standard"


def desired_model(service: Object) -> DesiredModel:
    """Return the model and the share of the traffic that the spec asks for."""
    spec = service["spec"]
    for canary in spec.get("canary") or ():
        return DesiredModel(uri=storage_uri(canary.get("predictor") or {}), percent=canary.get("trafficPercent"))
    predictor = spec.get("predictor") or {}
    return DesiredModel(uri=storage_uri(predictor), percent=predictor.get("canaryTrafficPercent"))


def storage_uri(predictor: Object) -> str:
    return str((predictor.get("model") or {}).get("storageUri") or "")


def spec_fingerprint(service: Object) -> str:
    """Compute a digest of everything in the spec except the model and its traffic share.

    It includes the annotations that influence what is served.
    """
    spec = {name: value for name, value in service["spec"].items() if name != "canary"}
    predictor = dict(spec.get("predictor") or {})
    predictor.pop("canaryTrafficPercent", None)
    if isinstance(predictor.get("model"), Mapping):
        predictor["model"] = {name: value for name, value in predictor["model"].items() if name != "storageUri"}
    deciding = {
        name: value
        for name, value in annotations(service).items()
        if any(part in name for part in DECIDING_ANNOTATIONS) and not name.startswith(CACHED)
    }
    text = orjson.dumps([{**spec, "predictor": predictor}, deciding], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()


def last_editor(service: Object) -> str:
    """Return the program that last changed the spec, according to managedFields; "" if it was the controller."""
    # The times are whole seconds, so all programs that wrote in the last second are named.
    edits = [
        (str(entry.get("time", "")), str(entry.get("manager", "")))
        for entry in service["metadata"].get("managedFields") or ()
        if "f:spec" in (entry.get("fieldsV1") or {}) and not entry.get("subresource")
    ]
    our_last_edit = max((at for at, manager in edits if manager == FIELD_MANAGER), default="")
    later_edits = [(at, manager) for at, manager in edits if manager != FIELD_MANAGER and at >= our_last_edit]
    last = max((at for at, _ in later_edits), default="")
    return " or ".join(sorted({manager for at, manager in later_edits if at == last}))


def condition(thing: Object, name: str) -> Object:
    conditions = thing.get("status", {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == name), {})


def condition_true(thing: Object, name: str) -> bool:
    return condition(thing, name).get("status") == "True"


def annotations(thing: Object) -> Object:
    values: Object = thing["metadata"].get("annotations") or {}
    return values


def fetched_uri(pods: Object) -> str:
    """Return the URI of the model that the pods of a template or revision fetch.

    The URI is in KServe's annotation, or is an argument of an init container.
    """
    if noted := annotations(pods).get(SOURCE_ANNOTATION):
        return str(noted)
    spec = pods.get("spec", {})
    initialisers = [container for container in spec.get("initContainers") or () if container.get("args")]
    return str(initialisers[0]["args"][0]) if initialisers else ""
