"""One look's facts, as the rules of deciding take them, and the two ways in which a rule ends."""

from typing import Any, NamedTuple

from serving.rollout.ports import Proof, ServiceSnapshot, Window
from serving.rollout.spec import RolloutSpec
from serving.rollout.state import DesiredModel, Intent, Outcome, State, iso_timestamp


class Observation(NamedTuple):
    """All that was read for one look. `proofs` are of the release and of the stable model, in Verify alone; where
    nothing is served there is no stable one."""

    spec: RolloutSpec
    state: State
    served: ServiceSnapshot
    window: Window | None = None
    proofs: tuple[Proof, Proof | None] | None = None


class Decision(NamedTuple):
    state: State
    asked: DesiredModel | None = None
    """What to ask of the InferenceService, once the state is written."""


class DecisionContext(NamedTuple):
    """One look's facts, as the rules take them."""

    spec: RolloutSpec
    state: State
    served: ServiceSnapshot
    window: Window | None
    proofs: tuple[Proof, Proof | None] | None
    now: float
    elapsed: float

    def but(self, **changes: Any) -> "DecisionContext":
        return self._replace(state=self.state.model_copy(update=changes))

    def noted(self, action: str, why: str, weighed: bool = False) -> "DecisionContext":
        return self._replace(state=self.state.noted(self.now, action, why, weighed))

    def canary(self, percent: int | None) -> DesiredModel:
        return DesiredModel(uri=self.spec.release.uri, percent=percent)

    @property
    def canary_ready(self) -> bool:
        newest = self.served.newest
        return self.served.settled and newest is not None and newest.uri == self.spec.release.uri and newest.ready


def request_change(turn: DecisionContext, asked: DesiredModel, action: str, why: str) -> Decision:
    """Write down what is meant first; only a person's pause holds it, and never a rollback."""
    if turn.spec.paused and turn.state.phase != "Rollback":
        return Decision(turn.state)
    intent = Intent(
        action=action,
        uri=asked.uri,
        percent=asked.percent,
        expected_resource_version=turn.served.resource_version,
        at=iso_timestamp(turn.now),
    )
    return Decision(turn.noted(action, why).but(intent=intent).state, asked)


def end_rollout(turn: DecisionContext, outcome: Outcome, reasons: tuple[str, ...]) -> Decision:
    why = "; ".join(reasons) or "the canary serves everybody"
    done = turn.but(phase="Done", outcome=outcome, reasons=reasons, intent=None)
    return Decision(done.noted(outcome, why).state)


def describe_edit(turn: DecisionContext) -> str:
    who = turn.served.editor or "somebody"
    same = turn.served.asked == turn.state.asked
    return f"{who} changed what is served: {'not the model, but its pods' if same else turn.served.asked}"
