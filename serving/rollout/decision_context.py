"""Facts for the rules in decide.py, the preconditions of a rollout, and functions that request a change or end it."""

from typing import Any, NamedTuple

from serving.rollout.ports import Proof, ServiceSnapshot, Window
from serving.rollout.spec import RolloutSpec
from serving.rollout.state import DesiredModel, Intent, Outcome, State, iso_timestamp


class Decision(NamedTuple):
    state: State
    desired: DesiredModel | None = None
    """Change of the InferenceService that is written after the state; None for no change."""


class DecisionContext(NamedTuple):
    """Everything that was read for one reconcile; the rules in decide.py use nothing else."""

    spec: RolloutSpec
    state: State
    service: ServiceSnapshot
    window: Window | None
    """Newest measurements; None outside the phase Analyse, or if there are none."""

    proofs: tuple[Proof, Proof | None] | None
    """Proofs of the release and of the stable model (None if nothing is served yet). The pair is None outside the
    phase Verify, or if a release could not be read."""

    now: float
    elapsed: float = 0.0
    """Seconds since the last reconcile, computed from the state."""

    def with_state(self, **changes: Any) -> "DecisionContext":
        return self._replace(state=self.state.model_copy(update=changes))

    def with_record(self, action: str, why: str, with_figures: bool = False) -> "DecisionContext":
        return self._replace(state=self.state.with_record(self.now, action, why, with_figures))

    def canary_at(self, percent: int | None) -> DesiredModel:
        return DesiredModel(uri=self.spec.release.uri, percent=percent)

    @property
    def canary_ready(self) -> bool:
        newest = self.service.newest
        return self.service.settled and newest is not None and newest.uri == self.spec.release.uri and newest.ready

    @property
    def serves_everybody(self) -> bool:
        """True if the release is ready, rolled out, and has all of the traffic."""
        uri, rolled_out = self.spec.release.uri, self.service.rolled_out
        is_rolled_out = rolled_out is not None and rolled_out.uri == uri
        return self.canary_ready and is_rolled_out and self.service.traffic.get(uri) == 100


def request_change(context: DecisionContext, desired: DesiredModel, action: str, why: str) -> Decision:
    """Request a change, and store it in the state as the intent. During a pause only a rollback requests changes."""
    if context.spec.paused and context.state.phase != "Rollback":
        return Decision(context.state)
    version, at = context.service.resource_version, iso_timestamp(context.now)
    intent = Intent(action=action, uri=desired.uri, percent=desired.percent, expected_resource_version=version, at=at)
    return Decision(context.with_record(action, why).with_state(intent=intent).state, desired)


def end_rollout(context: DecisionContext, outcome: Outcome, reasons: tuple[str, ...]) -> Decision:
    why = "; ".join(reasons) or "the canary serves everybody"
    done = context.with_state(phase="Done", outcome=outcome, reasons=reasons, intent=None)
    return Decision(done.with_record(outcome, why).state)


def describe_edit(context: DecisionContext) -> str:
    editor = context.service.editor or "somebody"
    same_model = context.service.desired == context.state.desired
    return (
        f"{editor} changed what is served: {'not the model, but its pods' if same_model else context.service.desired}"
    )


def unmet_preconditions(spec: RolloutSpec, service: ServiceSnapshot, canary: Proof, stable: Proof) -> tuple[str, ...]:
    """List all reasons why a rollout may not begin, so that a person can fix all at once; empty if it may begin."""
    reasons = [*spec.beyond_limits(), *verification_failures(spec, canary)]
    reasons += [f"the stable model, to which a rollback would go: {missing}" for missing in stable.missing]
    if canary.model == stable.model and service.desired.percent is None:
        reasons.append(f"model {canary.model[:12]} is what is served already")
    if service.unsupported:
        reasons.append(service.unsupported)
    if spec.mode not in ("Auto", service.mode):
        reasons.append(f"the InferenceService is {service.mode}, and the rollout asks for {spec.mode}")
    if service.desired.percent is not None:
        reasons.append(f"a canary of {service.desired} is under way already: end it first")
    rolled_out = (service.rolled_out.uri or "a revision that is gone") if service.rolled_out else "nothing"
    if not service.settled or rolled_out != service.desired.uri:
        reasons.append(f"{service.desired.uri} is asked for, and {rolled_out} is served: wait until they agree")
    return tuple(reasons)


def verification_failures(spec: RolloutSpec, canary: Proof) -> list[str]:
    """List the reasons why the release may not be served."""
    reasons = [f"release {spec.release.digest[:12]}: {missing}" for missing in canary.missing]
    if not canary.digest:
        return reasons
    if canary.digest != spec.release.digest:
        reasons.append(f"{spec.release.uri} is release {canary.digest[:12]}, not {spec.release.digest[:12]}")
    if canary.model != spec.release.model:
        reasons.append(f"its model is {canary.model[:12]}, not {spec.release.model[:12]}")
    return reasons
