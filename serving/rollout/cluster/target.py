"""Target on Kubernetes: an InferenceService. It is changed only if it has not changed since it was read."""

from typing import Any

from qinglan.kubernetes.client import Api
from serving.rollout.cluster import knative, standard_mode
from serving.rollout.cluster.api_errors import translate_refusals
from serving.rollout.cluster.first_inference_service import first_inference_service
from serving.rollout.cluster.inference_service import (
    NO_SERVICE,
    Object,
    ServiceObjects,
    deployment_mode,
    desired_model,
    last_editor,
    spec_fingerprint,
)
from serving.rollout.cluster.object_cache import SERVICE_LABEL, ObjectCache
from serving.rollout.ports import ServiceSnapshot
from serving.rollout.state import DesiredModel

SERVICES = "inferenceservices"


class ClusterTarget:
    """Target of a rollout: its InferenceService. The first write creates it if it does not exist."""

    def __init__(self, api: Api, cache: ObjectCache, rollout: Object, standard_canary: bool = False) -> None:
        self.api, self.cache, self.rollout, self.standard_canary = api, cache, rollout, standard_canary
        self.name = str(rollout["spec"]["inferenceService"])

    def read(self) -> ServiceSnapshot:
        service = self._service()
        return service_snapshot(self._objects(service), self.standard_canary) if service else NO_SERVICE

    def write(self, desired: DesiredModel, expected: str) -> None:
        """Change the service if it still has the expected version. If `expected` is "", create the service.

        Raises a ConflictError if another program has changed or created the service.
        """
        with translate_refusals(self.api):
            if not expected:
                self.cache.put(SERVICES, self.api.create(SERVICES, first_inference_service(self.rollout)))
                return
            service = self._service()
            # A JSON merge patch (RFC 7386): a percent of None removes the field, which gives the model all users.
            patch: dict[str, Any] = {
                "predictor": {"canaryTrafficPercent": desired.percent, "model": {"storageUri": desired.uri}}
            }
            if service is not None and deployment_mode(service) == "Standard":
                patch = standard_mode.spec_patch(service, desired)
            body = {"metadata": {"resourceVersion": expected}, "spec": patch}
            self.cache.put(SERVICES, self.api.merge(SERVICES, self.name, body))

    def _service(self) -> Object | None:
        """Read the service from the cache or, if the cache does not have it yet, from the API server."""
        service = self.cache.get(SERVICES, self.name)
        if service is not None:
            return service
        with translate_refusals(self.api):
            return self.api.get(SERVICES, self.name)

    def _objects(self, service: Object) -> ServiceObjects:
        if deployment_mode(service) == "Serverless":
            # Revisions are watched apart from services. A model whose revision is not in the cache yet would be taken
            # for one that does not serve, so the API server is asked then.
            revisions = self.cache.revisions(self.name)
            known = knative.named_revisions(service) <= revisions.keys()
            return ServiceObjects(service, revisions=revisions if known else self._listed("revisions"))
        deployments, pods = self._listed("deployments"), self._listed("pods")
        return ServiceObjects(service, deployments=deployments, pods=tuple(pods.values()))

    def _listed(self, kind: str) -> dict[str, Object]:
        with translate_refusals(self.api):
            items = self.api.all(kind, {"labelSelector": f"{SERVICE_LABEL}={self.name}"})["items"]
        return {item["metadata"]["name"]: item for item in items}


def service_snapshot(objects: ServiceObjects, standard_canary: bool = False) -> ServiceSnapshot:
    """Build the snapshot of an InferenceService from the objects of its deployment mode."""
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
        unsupported=_unsupported(service, standard_canary),
        editor=last_editor(service),
        uid=str(meta["uid"]),
    )


def _unsupported(service: Object, standard_canary: bool) -> str:
    if not desired_model(service).uri:
        return "it serves by another field than spec.predictor.model.storageUri: no release can be read from it"
    if service["spec"].get("transformer"):
        return "a separate transformer and a canary do not mix in KServe: put it into the predictor's pods"
    if len(service["spec"].get("canary") or ()) > 1:
        return "it has more than one canary already: end them first"
    if deployment_mode(service) == "Standard" and not standard_canary:
        return standard_mode.UNSUPPORTED_REASON
    return ""
