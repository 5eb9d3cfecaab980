"""Settings of the deploy stage: the release, the service and the rollout policy."""

from typing import Any, Self

from pydantic import Field, model_validator

from qinglan.config import TENANT_MODEL, Config, Positive

POLICY = ("steps", "mode", "stepSeconds", "minimumSample", "deadlineSeconds", "checks", "foreignEdits")


class DeployConfig(Config):
    """Rollout of a release to an InferenceService."""

    name: str = Field(pattern=TENANT_MODEL)
    """Tenant and model in the release's signed statement, such as fivedoctors/rewriter."""

    store: str = Field(min_length=1)
    """Store of the release; by default `register.store`. Pods reach only S3."""

    namespace: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    """Kubernetes namespace of the tenant, such as `fivedoctors`."""

    service: str = Field(default="rewriter", pattern=r"^[a-z]([-a-z0-9]{0,51}[a-z0-9])?$")
    """Name of the InferenceService. If it does not exist, the rollout creates it from the next four settings."""

    runtime: str = "qinglan-rewriter-cpu"
    """Name of the ServingRuntime."""

    format: str = "qinglan-rewriter"
    """Model format that this runtime supports."""

    min_replicas: Positive = 1
    """Smallest number of replicas of the InferenceService."""

    max_replicas: Positive = 1
    """Largest number of replicas of the InferenceService."""

    adapter: bool = False
    """Serving of the release's adapter instead of the merged weights, by a runtime that has the base model."""

    rollout: dict[str, Any] = {}
    """Rollout policy, with fields of a ModelRollout's spec, such as `{steps: [5, 20, 50, 100], stepSeconds: 300}`.
    The controller has defaults for omitted fields. The API server checks the values."""

    @model_validator(mode="after")
    def _policy_alone(self) -> Self:
        if unknown := sorted(set(self.rollout) - {*POLICY}):
            raise ValueError(f"rollout: no {', '.join(unknown)}. There are: {', '.join(POLICY)}")
        return self
