"""The target on Kubernetes: an InferenceService, which is changed at the version that was read."""

from typing import Any

from qinglan.kubernetes.client import Api
from serving.rollout.cluster import standard_mode
from serving.rollout.cluster.api_errors import translate_refusals
from serving.rollout.cluster.first_inference_service import first_inference_service
from serving.rollout.cluster.inference_service import NO_SERVICE, Object, ServiceObjects, deployment_mode
from serving.rollout.cluster.knative import named_revisions
from serving.rollout.cluster.object_cache import SERVICE_LABEL, ObjectCache
from serving.rollout.cluster.snapshot import service_snapshot
from serving.rollout.ports import ServiceSnapshot
from serving.rollout.state import DesiredModel

SERVICES = "inferenceservices"


class ClusterTarget:
    """The InferenceService of a ModelRollout. Where there is none, the first write makes it."""

    def __init__(self, api: Api, cache: ObjectCache, rollout: Object, standard_canary: bool = False) -> None:
        self.api, self.cache, self.rollout, self.standard_canary = api, cache, rollout, standard_canary
        self.name = str(rollout["spec"]["inferenceService"])

    def read(self) -> ServiceSnapshot:
        service = self._service()
        if service is None:
            return NO_SERVICE
        return service_snapshot(self._objects(service), self.standard_canary)

    def write(self, desired: DesiredModel, expected: str) -> None:
        """Merge the change at the expected version; with no version make the service, unless somebody was faster."""
        with translate_refusals(self.api):
            if not expected:
                self.cache.put(SERVICES, self.api.create(SERVICES, first_inference_service(self.rollout)))
                return
            body = {"metadata": {"resourceVersion": expected}, "spec": self._patch(desired)}
            self.cache.put(SERVICES, self.api.merge(SERVICES, self.name, body))

    def _service(self) -> Object | None:
        """The service. Where the cache has none, the API server is asked: the cached copy may be late."""
        service = self.cache.get(SERVICES, self.name)
        if service is not None:
            return service
        with translate_refusals(self.api):
            return self.api.get(SERVICES, self.name)

    def _objects(self, service: Object) -> ServiceObjects:
        if deployment_mode(service) == "Serverless":
            return ServiceObjects(service, revisions=self._revisions(service))
        deployments, pods = self._listed("deployments"), self._listed("pods")
        return ServiceObjects(service, deployments=deployments, pods=tuple(pods.values()))

    def _revisions(self, service: Object) -> dict[str, Object]:
        """Its revisions. The API server is asked where the cache lacks one that the service names: they are watched
        apart, and a model whose revision is not known yet would be taken for one that does not serve."""
        revisions = self.cache.revisions(self.name)
        return revisions if named_revisions(service) <= revisions.keys() else self._listed("revisions")

    def _listed(self, kind: str) -> dict[str, Object]:
        with translate_refusals(self.api):
            items = self.api.all(kind, {"labelSelector": f"{SERVICE_LABEL}={self.name}"})["items"]
        return {item["metadata"]["name"]: item for item in items}

    def _patch(self, desired: DesiredModel) -> dict[str, Any]:
        service = self._service()
        if service is not None and deployment_mode(service) == "Standard":
            return standard_mode.spec_patch(service, desired)
        return {"predictor": {"canaryTrafficPercent": desired.percent, "model": {"storageUri": desired.uri}}}
