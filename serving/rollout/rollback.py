"""The way back to the stable release, and when it is complete."""

from serving.rollout.decision_context import Decision, DecisionContext, describe_edit, end_rollout, request_change
from serving.rollout.state import DesiredModel, Outcome

CUT_SECONDS = 120.0
"""Seconds that KServe may take to give the traffic back to the revision before, once the share is 0."""
FLIGHT_SECONDS = 90.0
"""Seconds after which a write has been answered or dropped: the API server's own limit is 60 s."""


def start_rollback(context: DecisionContext, ending: Outcome, reasons: tuple[str, ...]) -> Decision:
    context = context.with_record("roll back", "; ".join(reasons), with_figures=context.state.phase == "Analyse")
    return continue_rollback(context.with_state(phase="Rollback", ending=ending, reasons=reasons, blind=0.0))


def continue_rollback(context: DecisionContext) -> Decision:
    """Go back to the stable release. The share is cleared last: until then the newest ready revision is the bad one.

    If the newest revision was rolled out already, a share of 0 makes KServe go back to the one before it. That helps
    while the newest is the bad one, and must never be requested once it is the restored one.
    """
    if context.service.desired != context.state.desired:  # an edit by somebody else is named, and changes nothing
        context = context.with_record("foreign edit", describe_edit(context))
        context = context.with_state(desired=context.service.desired)
    return _next_rollback_step(context)


def _next_rollback_step(context: DecisionContext) -> Decision:
    state, service = context.state, context.service
    assert state.stable is not None, "known since Verify"
    target = DesiredModel(uri=state.stable.uri)
    newest, rolled_out = service.newest, service.rolled_out
    restored = service.settled and newest is not None and newest.uri == target.uri and newest.ready
    if service.desired == target:
        back = restored and service.traffic.get(target.uri) == 100 and not _in_flight(context)
        return end_rollout(context, state.ending, state.reasons) if back else _await_restored_pods(context)
    if service.mode == "Standard":
        return request_change(context, target, "take back", "the canary is removed")
    stable_rolled_out = rolled_out is not None and rolled_out.uri == target.uri
    if service.desired.uri == target.uri:
        if restored or not stable_rolled_out:
            return request_change(context, target, "clear", "the stable release is given all of the traffic")
        if service.desired.percent == 0:
            return _await_restored_pods(context)
        return request_change(context, _at_zero_percent(target), "cut", "no user gets the canary")
    # The spec still names the canary. Cut its share first, while that helps, and for CUT_SECONDS at most. It helps if
    # the newest revision is rolled out: then KServe goes back to the one before it. And if KServe has yet to create
    # the requested revision: until then the stable revision before the canary is the newest, and looks like the
    # restored one.
    if stable_rolled_out:
        cut_helps = newest is None or newest.uri != service.desired.uri
    else:
        cut_helps = newest is not None and rolled_out is not None and newest.name == rolled_out.name
    if cut_helps and state.blind < CUT_SECONDS:
        waiting, cut = context.with_state(blind=state.blind + context.elapsed), _at_zero_percent(service.desired)
        if service.desired == cut:
            return Decision(waiting.state)
        return request_change(waiting, cut, "cut", "no user gets the canary")
    why = "the stable release is asked for again"
    if stable_rolled_out:
        return request_change(context, _at_zero_percent(target), "take back", why)
    return request_change(context, target, "take back", f"{why}: no share of 0 would help")


def _in_flight(context: DecisionContext) -> bool:
    """Tell if a write without a reply may still arrive: it is young, and the version that it expects still stands."""
    intent = context.state.intent
    stands = intent is not None and intent.expected_resource_version == context.service.resource_version
    return stands and context.state.blind < FLIGHT_SECONDS


def _at_zero_percent(desired: DesiredModel) -> DesiredModel:
    return DesiredModel(uri=desired.uri, percent=0)


def _await_restored_pods(context: DecisionContext) -> Decision:
    """Wait for the restored pods; after the deadline end without them if the stable model has every user."""
    state = context.state
    assert state.stable is not None, "known since Verify"
    waited = context.with_state(blind=state.blind + context.elapsed)
    served = context.service.settled and context.service.traffic.get(state.stable.uri) == 100
    if served and waited.state.blind >= context.spec.deadline_seconds:
        late = f"the stable model serves everybody, but its new pods are not ready after {waited.state.blind:,.0f} s"
        return end_rollout(waited, state.ending, (*state.reasons, late))
    return Decision(waited.state)
