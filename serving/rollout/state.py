"""What a ModelRollout has come to: its status, the controller's only memory."""

from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from serving.rollout.sequential import Count, Score
from serving.rollout.spec import CamelCaseConfig, Check

Phase = Literal["Verify", "Apply", "WaitReady", "Analyse", "Promote", "Rollback", "Done"]
Outcome = Literal["", "Promoted", "RolledBack", "Refused", "Aborted"]
MOST_HISTORY = 200


class DesiredModel(CamelCaseConfig):
    """What an InferenceService is asked to serve: this model, to this share of users; None is all of them."""

    uri: str
    percent: int | None = None

    def __str__(self) -> str:
        return f"{self.uri} at {100 if self.percent is None else self.percent} %"


class Intent(CamelCaseConfig):
    """What is about to be written, kept before it is: whoever comes next reads whether it happened."""

    action: str
    uri: str
    percent: int | None = None
    expected_resource_version: str
    at: str

    @property
    def desired(self) -> DesiredModel:
        return DesiredModel(uri=self.uri, percent=self.percent)


class StableRelease(CamelCaseConfig):
    """The verified release that was served when the rollout began, and is gone back to."""

    uri: str
    digest: str
    model: str

    @property
    def version(self) -> str:
        return self.model[:12]


class CheckFigures(CamelCaseConfig):
    """One check's numbers as they stood at a decision."""

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
    phase: Phase = "Verify"
    checks: tuple[Check, ...] = ()
    """The policy's checks where the spec names none: those of the controller's first write, to the end."""
    step: int = 0
    percent: int = 0
    """The share of users that the canary was last seen to be asked for."""
    outcome: Outcome = ""
    ending: Outcome = ""
    """What the outcome will be, while the traffic is still being brought back."""
    intent: Intent | None = None
    stable: StableRelease | None = None
    desired: DesiredModel | None = Field(default=None, alias="asked")
    """The model and share that the controller last wrote; anything else in the InferenceService is a foreign edit."""
    rest: str = ""
    uid: str = ""
    """Of the InferenceService that this is about: another of its name is not it."""
    generation: int = 0
    """Of the InferenceService when last read: an answer of an older one is a stale read."""
    cursor: float | None = None
    """Up to when measurements are folded into the evidence, on the clock of what measures."""
    step_seconds: float = 0.0
    """How much time of this step was measured."""
    last_reconciled: float | None = Field(default=None, alias="looked")
    """The controller's clock at the last reconcile."""
    watched: float = 0.0
    """How long a controller was watching; time in which none was does not count."""
    blind: float = 0.0
    """For how long nothing, or nothing credible, has been seen of the canary."""
    restored: int = 0
    evidence: tuple[Score, ...] = ()
    reasons: tuple[str, ...] = ()
    history: tuple[DecisionRecord, ...] = ()

    def with_record(self, now: float, action: str, why: str, with_figures: bool = False) -> "State":
        """The same, with one more line of history, and the numbers where the decision was made on them.

        A line that only says the last one again is left out.
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
