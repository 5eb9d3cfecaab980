"""Spec of a ModelRollout. Its defaults are the default policy.

Limits apply to every policy. A rollout that exceeds them is refused before anything is changed, but its spec can be
read, because older rollouts may exceed them. The same limits are in manifests/platform/modelrollout.yaml; a test
compares both.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from qinglan.config import Config, Positive, explain_validation_error

CheckName = Literal["errors", "slow", "fallbacks", "zero_hits", "costly", "quality"]

MOST_FIRST_PERCENT = 50
"""Highest percentage of users for the canary at the first step above 0 %."""
LEAST_STEP_SECONDS = 5
"""Shortest step in seconds. The demo's steps take 7 s; a policy for real users needs minutes."""
LEAST_SAMPLE = 30
"""Smallest number of the canary's requests at a step; a smaller sample says little about a rate."""
MOST_MARGIN = 0.1
"""Largest margin of a check, so that no policy accepts additional failures of more than one request in ten."""


class CamelCaseConfig(Config):
    """Base class of settings whose fields are in camelCase in Kubernetes."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Check(CamelCaseConfig):
    """Check that compares the canary's rate of failures with the stable model's, within a margin."""

    name: CheckName
    margin: float = Field(gt=0.0, le=0.5)
    """Share of all users' requests that may additionally fail the check once the canary serves its next share."""
    seconds: float | None = Field(default=None, ge=0.005)
    """Seconds above which an answer is slow; only for `slow`. The lowest value is the histogram's lowest bound."""
    tokens: int | None = Field(default=None, ge=8)
    """Written tokens above which a question is costly; only for `costly`. The minimum is the histogram's lowest
    bound."""

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
"""Checks of the default policy. The rewriter and the RAG service always count these."""

QUALITY = Check(name="quality", margin=0.10)
"""Check that is part of the default policy only if a shadow runs: only a shadow measures it, and a check without data
never passes."""


def default_checks(shadowed: bool) -> tuple[Check, ...]:
    """Return the checks for a spec that names none; `shadowed` is True if a shadow runs for the InferenceService."""
    return (*CHECKS, QUALITY) if shadowed else CHECKS


class Release(CamelCaseConfig):
    """Release to serve. All of these fields are verified before anything is changed."""

    name: str
    digest: str
    uri: str
    model: str
    """Digest of the model folder. Its first 12 characters are the version in predictions and metrics."""

    @property
    def version(self) -> str:
        return self.model[:12]


class Predictor(CamelCaseConfig):
    """Settings of an InferenceService that the rollout creates (cluster/first_inference_service.py). An
    InferenceService that exists keeps its settings."""

    runtime: str = Field(min_length=1)
    format: str = Field(min_length=1)
    min_replicas: int | None = None
    max_replicas: int | None = None


class RolloutPolicy(CamelCaseConfig):
    """Policy by which a rollout is decided."""

    steps: tuple[int, ...] = (5, 20, 50, 100)
    """Canary's shares of the traffic in percent, by step. At a first step of 0, only shadow pairs are compared,
    before any user gets the canary."""
    mode: Literal["Auto", "Serverless", "Standard"] = "Auto"
    step_seconds: Positive = 300
    """Shortest duration of a step in seconds. The default is enough for ten reconciles, and for queues to build."""
    minimum_sample: Positive = 200
    """Lowest number of the canary's requests at each step, even if the statistics decide earlier."""
    deadline_seconds: Positive = 7200
    """Seconds of watching, without pauses, after which an undecided rollout is rolled back."""
    checks: tuple[Check, ...] = CHECKS
    foreign_edits: Literal["Stop", "Restore"] = "Stop"
    """Reaction to an edit of the InferenceService by another program: roll back and end, or restore and continue."""

    @model_validator(mode="after")
    def _can_be_followed(self) -> Self:
        # The same rules are in the CRD as CEL: https://kubernetes.io/docs/reference/using-api/cel/
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
        return self

    def beyond_limits(self) -> tuple[str, ...]:
        """List each limit that the policy exceeds, in words; empty if it exceeds none."""
        first = next(step for step in self.steps if step)
        names = {check.name for check in self.checks}
        wide = [check.name for check in self.checks if check.margin > MOST_MARGIN]
        problems = {
            f"steps: the first with users is {first} %, and {MOST_FIRST_PERCENT} is the most: the others keep the "
            "stable model": first > MOST_FIRST_PERCENT,
            f"stepSeconds is {self.step_seconds}, and {LEAST_STEP_SECONDS} is the least":
                self.step_seconds < LEAST_STEP_SECONDS,
            f"minimumSample is {self.minimum_sample}, and {LEAST_SAMPLE} is the least":
                self.minimum_sample < LEAST_SAMPLE,
            f"the margin of {', '.join(wide)} is more than {MOST_MARGIN}": bool(wide),
            "the check `errors` is missing: a canary that fails requests would pass": "errors" not in names,
        }  # fmt: skip
        return tuple(problem for problem, applies in problems.items() if applies)


class RolloutSpec(RolloutPolicy):
    """Spec of a rollout: what to serve, the policy, and a person's commands."""

    inference_service: str
    release: Release
    predictor: Predictor | None = None
    paused: bool = False
    abort: bool = False
    promote: bool = False
    run: str = ""
    verdict: str = ""

    @model_validator(mode="after")
    def _one_word_at_a_time(self) -> Self:
        if self.abort and self.promote:
            raise ValueError("abort and promote contradict each other")
        return self


def policy_problems(policy: Mapping[str, Any]) -> tuple[str, ...]:
    """List the reasons why a controller would refuse this policy, to check settings long before the rollout."""
    try:
        return RolloutPolicy.model_validate(policy).beyond_limits()
    except ValidationError as error:
        return (explain_validation_error(error),)
