"""One InferenceService: read as what it asks for and does, and changed at the version that was read."""

from typing import Any

from qinglan.kubernetes.client import Api
from qinglan.rollouts import first_service
from serving.rollout.cluster import standard
from serving.rollout.cluster.object_cache import OF_SERVICE, ObjectCache
from serving.rollout.cluster.reading import NOTHING, Object, Objects, form_of
from serving.rollout.cluster.refused import explained
from serving.rollout.cluster.serving import served
from serving.rollout.ports import Served
from serving.rollout.state import Asked

SERVICES = "inferenceservices"


class ClusterTarget:
    """The one that a ModelRollout is about; where there is none, its first write makes it."""

    def __init__(self, api: Api, cache: ObjectCache, rollout: Object, standard_canary: bool = False) -> None:
        self.api, self.cache, self.rollout, self.standard_canary = api, cache, rollout, standard_canary
        self.name = str(rollout["spec"]["inferenceService"])

    def read(self) -> Served:
        service = self._service()
        if service is None:
            return NOTHING
        return served(self._objects(service), self.standard_canary)

    def write(self, asked: Asked, expected: str) -> None:
        """A merge patch, held to the version; without one the service is made, unless somebody was faster."""
        with explained(self.api):
            if not expected:
                self.cache.put(SERVICES, self.api.create(SERVICES, first_service(self.rollout)))
                return
            body = {"metadata": {"resourceVersion": expected}, "spec": self._patch(asked)}
            self.cache.put(SERVICES, self.api.merge(SERVICES, self.name, body))

    def _service(self) -> Object | None:
        """That there is none is asked again: much hangs on it, and a copy may be late."""
        found = self.cache.get(SERVICES, self.name)
        if found is not None:
            return found
        with explained(self.api):
            return self.api.get(SERVICES, self.name)

    def _objects(self, service: Object) -> Objects:
        if form_of(service) == "Serverless":
            return Objects(service, revisions=self.cache.revisions(self.name))
        query = {"labelSelector": f"{OF_SERVICE}={self.name}"}
        with explained(self.api):
            deployments = self.api.all("deployments", query)["items"]
            pods = self.api.all("pods", query)["items"]
        return Objects(service, deployments={one["metadata"]["name"]: one for one in deployments}, pods=tuple(pods))

    def _patch(self, asked: Asked) -> dict[str, Any]:
        service = self.cache.get(SERVICES, self.name)
        if service is not None and form_of(service) == "Standard":
            return standard.patch(service, asked)
        return {"predictor": {"canaryTrafficPercent": asked.percent, "model": {"storageUri": asked.uri}}}
