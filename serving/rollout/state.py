"""Status of a ModelRollout, which is the controller's only memory."""

from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from serving.rollout.sequential import Count, Score
from serving.rollout.spec import CamelCaseConfig, Check

Phase = Literal["Verify", "Apply", "WaitReady", "Analyse", "Promote", "Rollback", "Done"]
Outcome = Literal["", "Promoted", "RolledBack", "Refused", "Aborted"]
MOST_HISTORY = 200


class DesiredModel(CamelCaseConfig):
    """Model that an InferenceService is asked to serve, and its percent of the users; None means all users."""

    uri: str
    percent: int | None = None

    def __str__(self) -> str:
        return f"{self.uri} at {100 if self.percent is None else self.percent} %"


class Intent(CamelCaseConfig):
    """Change that is about to be written. The next reconcile checks if it happened."""

    action: str
    uri: str
    percent: int | None = None
    expected_resource_version: str
    at: str

    @property
    def desired(self) -> DesiredModel:
        return DesiredModel(uri=self.uri, percent=self.percent)


class StableRelease(CamelCaseConfig):
    """Verified release that was served when the rollout began; a rollback restores it."""

    uri: str
    digest: str
    model: str

    @property
    def version(self) -> str:
        return self.model[:12]


class Requests(CamelCaseConfig):
    """Number of requests that each model answered or failed."""

    canary: float = 0.0
    stable: float = 0.0

    def __add__(self, other: "Requests") -> "Requests":
        return Requests(canary=self.canary + other.canary, stable=self.stable + other.stable)


class CheckFigures(CamelCaseConfig):
    """Figures of one check at a decision: the counts of the step, and the value of both bets."""

    check: str
    canary: Count
    stable: Count
    margin: float
    harm: float
    safe: float


class DecisionRecord(CamelCaseConfig):
    """Record of one decision: time, phase, action, reason, and figures."""

    at: str
    phase: Phase
    action: str
    why: str
    figures: tuple[CheckFigures, ...] = ()


class State(CamelCaseConfig):
    """Status of a rollout. The API server stores the fields in camelCase."""

    phase: Phase = "Verify"
    checks: tuple[Check, ...] = ()
    """Default checks that apply because the spec names none, stored at the controller's first write."""
    step: int = 0
    percent: int = 0
    """Percent of the users for the canary that the InferenceService's spec last asked for."""
    outcome: Outcome = ""
    ending: Outcome = ""
    """Outcome that the rollout will have once the rollback is complete."""
    intent: Intent | None = None
    stable: StableRelease | None = None
    desired: DesiredModel | None = Field(default=None, alias="asked")
    """Model and traffic share that the controller last wrote. Any other value is an edit by another program."""
    rest: str = ""
    uid: str = ""
    """Uid of the InferenceService, to detect a later object with the same name."""
    generation: int = 0
    """Newest generation of the InferenceService that was read; a read with an older generation is stale."""
    cursor: float | None = None
    """End of the measurements that are in the evidence, by the clock of their source."""
    step_seconds: float = 0.0
    """Seconds of this step that measurements cover so far."""
    last_reconciled: float | None = Field(default=None, alias="looked")
    """Time of the last reconcile by the controller's clock."""
    watched: float = 0.0
    """Seconds for which a controller has watched the rollout; time without a controller does not count."""
    blind: float = 0.0
    """Seconds without credible evidence on the canary."""
    requests: Requests = Requests()
    """Requests of this step that are in the evidence, used to check the canary's share of the requests."""
    restored: int = 0
    evidence: tuple[Score, ...] = ()
    reasons: tuple[str, ...] = ()
    history: tuple[DecisionRecord, ...] = ()

    def with_record(self, now: float, action: str, why: str, with_figures: bool = False) -> "State":
        """Copy the state with one more record of history, with figures if the decision was based on them.

        A record that repeats the last record is left out.
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
