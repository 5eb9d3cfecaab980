"""Roll back to the stable release, and detect when the rollback is complete."""

from serving.rollout.decision_context import Decision, DecisionContext, describe_edit, end_rollout, request_change
from serving.rollout.state import DesiredModel, Outcome

CUT_SECONDS = 120.0
"""Seconds that KServe may take to move the traffic back to the revision before the canary, once its share is 0."""
FLIGHT_SECONDS = 90.0
"""Seconds after which a write was surely answered or dropped; the API server's own limit is 60 s."""


def start_rollback(context: DecisionContext, ending: Outcome, reasons: tuple[str, ...]) -> Decision:
    context = context.with_record("roll back", "; ".join(reasons), with_figures=context.state.phase == "Analyse")
    return continue_rollback(context.with_state(phase="Rollback", ending=ending, reasons=reasons, blind=0.0))


def continue_rollback(context: DecisionContext) -> Decision:
    """Continue the rollback to the stable release. The field of the canary's share is removed last.

    Until the stable release has a new ready revision, the newest ready revision is the canary's. If the newest
    revision is already rolled out, a share of 0 makes KServe return to the revision before it. So a share of 0 is
    requested only while the newest revision is the canary's, never once it is the restored one.
    """
    if context.service.desired != context.state.desired:  # another program's edit is recorded, but changes nothing
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
    """True if a write without a reply may still arrive: it is recent, and the version it expects is still current."""
    intent = context.state.intent
    stands = intent is not None and intent.expected_resource_version == context.service.resource_version
    return stands and context.state.blind < FLIGHT_SECONDS


def _at_zero_percent(desired: DesiredModel) -> DesiredModel:
    return DesiredModel(uri=desired.uri, percent=0)


def _await_restored_pods(context: DecisionContext) -> Decision:
    """Wait for the restored pods. After the deadline, end without them if the stable model has all of the traffic."""
    state = context.state
    assert state.stable is not None, "known since Verify"
    waited = context.with_state(blind=state.blind + context.elapsed)
    served = context.service.settled and context.service.traffic.get(state.stable.uri) == 100
    if served and waited.state.blind >= context.spec.deadline_seconds:
        late = f"the stable model serves everybody, but its new pods are not ready after {waited.state.blind:,.0f} s"
        return end_rollout(waited, state.ending, (*state.reasons, late))
    return Decision(waited.state)
