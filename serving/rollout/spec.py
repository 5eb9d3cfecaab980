"""The spec of a ModelRollout. Its defaults are the default policy."""

from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from qinglan.config import Config, Positive

CheckName = Literal["errors", "slow", "fallbacks", "zero_hits", "costly", "quality"]


class CamelCaseConfig(Config):
    """A model whose fields are stored in camelCase by Kubernetes."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Check(CamelCaseConfig):
    """A share of the requests in which a canary may be worse than the stable model."""

    name: CheckName
    margin: float = Field(gt=0.0, le=0.5)
    """The additional share of all users' requests that may fail it, once the canary serves the next share."""
    seconds: float | None = Field(default=None, ge=0.005)
    """An answer that takes longer counts as slow; for `slow` alone. At least the histogram's lowest bound."""
    tokens: int | None = Field(default=None, ge=8)
    """A question that more are written for counts as costly; for `costly` alone. At least the lowest bound."""

    @model_validator(mode="after")
    def _limit_fits_check(self) -> Self:
        if self.seconds is not None and self.name != "slow":
            raise ValueError("only the check `slow` has seconds")
        if self.tokens is not None and self.name != "costly":
            raise ValueError("only the check `costly` has tokens")
        return self


CHECKS = (
    Check(name="errors", margin=0.01),
    Check(name="slow", margin=0.05, seconds=1.0),
    Check(name="fallbacks", margin=0.03),
    Check(name="zero_hits", margin=0.03),
    Check(name="costly", margin=0.05, tokens=32),
)
"""The checks of the default policy. Every rewriter and RAG service counts what they need."""

QUALITY = Check(name="quality", margin=0.10)
"""Part of the default policy only where a shadow runs: nothing else measures it, and no data passes no check."""


def default_checks(shadowed: bool) -> tuple[Check, ...]:
    """The checks of a spec that names none, for an InferenceService with or without a shadow."""
    return (*CHECKS, QUALITY) if shadowed else CHECKS


class Release(CamelCaseConfig):
    """The release to serve. All of it is checked again before anything is changed."""

    name: str
    digest: str
    uri: str
    model: str
    """The digest of the model folder. Its first 12 characters are the version in predictions and metrics."""

    @property
    def version(self) -> str:
        return self.model[:12]


class Predictor(CamelCaseConfig):
    """Settings of a first InferenceService (cluster/first_inference_service.py); an existing one keeps its own."""

    runtime: str = Field(min_length=1)
    format: str = Field(min_length=1)
    min_replicas: int | None = None
    max_replicas: int | None = None


class RolloutSpec(CamelCaseConfig):
    """A rollout, and the policy that it is decided by."""

    inference_service: str
    release: Release
    predictor: Predictor | None = None
    steps: tuple[int, ...] = (5, 20, 50, 100)
    """Shares of the traffic. A first step of 0 judges shadow pairs alone, before any user sees the canary."""
    mode: Literal["Auto", "Serverless", "Standard"] = "Auto"
    step_seconds: Positive = 300
    """The least that a step lasts: ten reconciles, and long enough for caches to fill and queues to build."""
    minimum_sample: Positive = 200
    """The least number of the canary's requests at each step, whatever the statistics say."""
    deadline_seconds: Positive = 7200
    """A rollout that is undecided after so long under watch goes back to the stable model."""
    checks: tuple[Check, ...] = CHECKS
    foreign_edits: Literal["Stop", "Restore"] = "Stop"
    """The answer to an edit of the InferenceService by somebody else: go back and end, or restore it and go on."""
    paused: bool = False
    abort: bool = False
    promote: bool = False
    run: str = ""
    verdict: str = ""

    @model_validator(mode="after")
    def _can_be_followed(self) -> Self:
        rising = list(self.steps) == sorted(set(self.steps))
        if not rising or len(self.steps) < 2 or self.steps[-1] != 100 or self.steps[0] < 0:
            raise ValueError(
                "steps must rise, and end with 100 after at least one that is measured: [5, 20, 50, 100]"
            )
        if len({check.name for check in self.checks}) != len(self.checks) or not self.checks:
            raise ValueError("name each check once, and at least one")
        if self.steps[0] == 0 and "quality" not in {check.name for check in self.checks}:
            raise ValueError("a step of 0 % needs the check `quality`: no other can see a model without users")
        if self.deadline_seconds < self.step_seconds * (len(self.steps) - 1):
            raise ValueError("deadlineSeconds is shorter than the steps last: it could only be taken back")
        if self.abort and self.promote:
            raise ValueError("abort and promote contradict each other")
        return self
