"""Settings of the deploy stage: the release, the service and the rollout policy."""

from typing import Any, Self

from pydantic import Field, model_validator

from qinglan.config import TENANT_MODEL, Config, Positive

POLICY = ("steps", "mode", "stepSeconds", "minimumSample", "deadlineSeconds", "checks", "foreignEdits")


class DeployConfig(Config):
    """One release's way to one InferenceService."""

    name: str = Field(pattern=TENANT_MODEL)
    """Tenant and model that the release was signed for, such as fivedoctors/rewriter."""

    store: str = Field(min_length=1)
    """The store that holds the release; by default `register.store`. Pods reach only S3."""

    namespace: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    """The tenant's on the cluster."""

    service: str = Field(default="rewriter", pattern=r"^[a-z]([-a-z0-9]{0,51}[a-z0-9])?$")
    """The InferenceService. Where there is none, the rollout makes it of the next four."""

    runtime: str = "qinglan-rewriter-cpu"
    """The ServingRuntime."""

    format: str = "qinglan-rewriter"
    """The model format that this runtime supports."""

    min_replicas: Positive = 1
    max_replicas: Positive = 1

    adapter: bool = False
    """The runtime has the base model: the release's merged weights stay in the store."""

    rollout: dict[str, Any] = {}
    """By which policy, in a ModelRollout's own words, such as `{steps: [5, 20, 50, 100], stepSeconds: 300}`; what is
    not said is the controller's default. The API server checks it."""

    @model_validator(mode="after")
    def _policy_alone(self) -> Self:
        if unknown := sorted(set(self.rollout) - {*POLICY}):
            raise ValueError(f"rollout: no {', '.join(unknown)}. There are: {', '.join(POLICY)}")
        return self
