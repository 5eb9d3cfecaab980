"""The status of a ModelRollout: the controller's only memory."""

from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from serving.rollout.sequential import Count, Score
from serving.rollout.spec import CamelCaseConfig, Check

Phase = Literal["Verify", "Apply", "WaitReady", "Analyse", "Promote", "Rollback", "Done"]
Outcome = Literal["", "Promoted", "RolledBack", "Refused", "Aborted"]
MOST_HISTORY = 200


class DesiredModel(CamelCaseConfig):
    """The model that an InferenceService is asked to serve, and to which share of users; None is all of them."""

    uri: str
    percent: int | None = None

    def __str__(self) -> str:
        return f"{self.uri} at {100 if self.percent is None else self.percent} %"


class Intent(CamelCaseConfig):
    """A change that is about to be written. The next reconcile reads whether it happened."""

    action: str
    uri: str
    percent: int | None = None
    expected_resource_version: str
    at: str

    @property
    def desired(self) -> DesiredModel:
        return DesiredModel(uri=self.uri, percent=self.percent)


class StableRelease(CamelCaseConfig):
    """The verified release that was served when the rollout began, and that a rollback restores."""

    uri: str
    digest: str
    model: str

    @property
    def version(self) -> str:
        return self.model[:12]


class Requests(CamelCaseConfig):
    """Requests that each model answered or failed."""

    canary: float = 0.0
    stable: float = 0.0

    def __add__(self, other: "Requests") -> "Requests":
        return Requests(canary=self.canary + other.canary, stable=self.stable + other.stable)


class CheckFigures(CamelCaseConfig):
    """One check's numbers at a decision: counts of the step, and the value of both bets."""

    check: str
    canary: Count
    stable: Count
    margin: float
    harm: float
    safe: float


class DecisionRecord(CamelCaseConfig):
    """One decision: when, in which phase, what, why, and on which numbers."""

    at: str
    phase: Phase
    action: str
    why: str
    figures: tuple[CheckFigures, ...] = ()


class State(CamelCaseConfig):
    """The status. Its aliases, in camelCase, are what the API server stores."""

    phase: Phase = "Verify"
    checks: tuple[Check, ...] = ()
    """The checks of a spec that names none, as the controller's first write noted them."""
    step: int = 0
    percent: int = 0
    """The share of users that the InferenceService was last seen to ask for the canary."""
    outcome: Outcome = ""
    ending: Outcome = ""
    """The outcome to come, while the traffic is still being brought back."""
    intent: Intent | None = None
    stable: StableRelease | None = None
    desired: DesiredModel | None = Field(default=None, alias="asked")
    """The model and share that the controller last wrote; anything else in the InferenceService is a foreign edit."""
    rest: str = ""
    uid: str = ""
    """The uid of the InferenceService: a later object of the same name is another one."""
    generation: int = 0
    """The newest generation of the InferenceService that was read: an older one is a stale read."""
    cursor: float | None = None
    """The end of the measurements that are in the evidence, on the clock of their source."""
    step_seconds: float = 0.0
    """The measured time of this step."""
    last_reconciled: float | None = Field(default=None, alias="looked")
    """The controller's clock at the last reconcile."""
    watched: float = 0.0
    """Seconds under watch; time in which no controller ran does not count."""
    blind: float = 0.0
    """Seconds without credible evidence on the canary."""
    requests: Requests = Requests()
    """Requests of this step that are in the evidence: their shares must be those that were asked for."""
    restored: int = 0
    evidence: tuple[Score, ...] = ()
    reasons: tuple[str, ...] = ()
    history: tuple[DecisionRecord, ...] = ()

    def with_record(self, now: float, action: str, why: str, with_figures: bool = False) -> "State":
        """The state with one more record of history, with the figures if the decision was based on them.

        A record that repeats the last one is left out.
        """
        last = self.history[-1] if self.history else None
        if last and (last.phase, last.action, last.why) == (self.phase, action, why):
            return self
        figures = self.figures() if with_figures else ()
        record = DecisionRecord(at=iso_timestamp(now), phase=self.phase, action=action, why=why, figures=figures)
        return self.model_copy(update={"history": (*self.history, record)[-MOST_HISTORY:]})

    def figures(self) -> tuple[CheckFigures, ...]:
        return tuple(
            CheckFigures(
                check=score.check,
                canary=score.canary,
                stable=score.stable,
                margin=score.margin,
                harm=_short(score.harm_value),
                safe=_short(score.safe_value),
            )
            for score in self.evidence
            if score.canary.total
        )


def iso_timestamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")


def _short(value: float) -> float:
    return float(f"{value:.3g}")
