"""Find the two models to compare now, and the URL that leads only to the canary."""

from collections.abc import Iterable, Mapping
from typing import Any

from qinglan.kubernetes.api_errors import ApiError
from qinglan.kubernetes.client import Api, connect
from qinglan.kubernetes.model_rollouts import PLURAL, Object, next_rollout, rollouts_of_service
from serving.rollout.cluster.first_inference_service import TAG_ROUTING
from serving.rollout.shadow.config import ModelPair
from serving.rollout.shadow.metrics import PairFailure

CANARY_PHASES = ("WaitReady", "Analyse")
"""Phases in which a canary waits for a decision."""

VERSION_LENGTH = 12


class RolloutPairSource:
    """Reads the service's current pair of models from the API server. The pair's URL is Knative's tag route."""

    def __init__(self, service: str, namespace: str, api: Api | None = None) -> None:
        self._api, self._service = (api or connect()).within(namespace), service

    def current_pair(self) -> ModelPair | None:
        """Read the current pair; None if there is no canary.

        Raises a PairFailure if the API server fails, or if no URL leads only to the canary.
        """
        try:
            rollouts = self._api.all(PLURAL, {})["items"]
            versions = compared_versions(rollouts, self._service)
            service = self._api.get("inferenceservices", self._service) if versions else None
        except ApiError as refusal:
            raise PairFailure("api_server", str(refusal)) from refusal
        if versions is None or service is None:
            return None
        if not (url := tag_route(service)):
            raise PairFailure(
                "no_tag_route",
                f"{self._service}: no route leads to the canary alone. It takes a Serverless InferenceService that "
                f"was made with the annotation {TAG_ROUTING}.",
            )
        return ModelPair(canary=versions[0], stable=versions[1], url=url)


def compared_versions(rollouts: Iterable[Object], service: str) -> tuple[str, str] | None:
    """Return the versions of the canary and of the stable model; None if no rollout has both now."""
    rollout = next_rollout(rollouts_of_service(rollouts, service))
    if rollout is None:
        return None
    status: Mapping[str, Any] = rollout.get("status") or {}
    stable = status.get("stable")
    if status.get("phase") not in CANARY_PHASES or not stable:
        return None
    return rollout["spec"]["release"]["model"][:VERSION_LENGTH], stable["model"][:VERSION_LENGTH]


def tag_route(service: Object) -> str:
    """Return the URL that leads only to the newest revision, whatever its traffic share; "" if there is none."""
    predictor = ((service.get("status") or {}).get("components") or {}).get("predictor") or {}
    routes = [
        target for target in predictor.get("traffic") or () if target.get("latestRevision") and target.get("tag")
    ]
    return str(routes[0].get("url") or "") if routes else ""
