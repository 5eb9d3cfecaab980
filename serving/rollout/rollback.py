"""The way back to the stable release, and when it has been gone."""

from serving.rollout.decision_context import Decision, DecisionContext, describe_edit, end_rollout, request_change
from serving.rollout.state import DesiredModel, Outcome

CUT_SECONDS = 120.0
"""How long KServe may take to give the traffic back to the revision before, once the share is 0."""
FLIGHT_SECONDS = 90.0
"""After so long a request has been answered or dropped: the API server's own limit is 60 s."""


def start_rollback(turn: DecisionContext, ending: Outcome, reasons: tuple[str, ...]) -> Decision:
    turn = turn.noted("roll back", "; ".join(reasons), weighed=turn.state.phase == "Analyse")
    return continue_rollback(turn.but(phase="Rollback", ending=ending, reasons=reasons, blind=0.0))


def continue_rollback(turn: DecisionContext) -> Decision:
    """Back to the stable release. The share is cleared last: until then the newest ready revision is the bad one.

    Where the newest revision was rolled out already, a share of 0 makes KServe go back to the one before it. That
    helps while the newest is the bad one, and must never be asked for once it is the restored one.
    """
    return _next_rollback_step(_note_foreign_edit(turn))


def _next_rollback_step(turn: DecisionContext) -> Decision:
    state, served = turn.state, turn.served
    assert state.stable is not None, "known since Verify"
    home = DesiredModel(uri=state.stable.uri)
    restored = served.settled and served.newest is not None and served.newest.uri == home.uri and served.newest.ready
    if served.asked == home:
        back = restored and served.traffic.get(home.uri) == 100 and not _in_flight(turn)
        return end_rollout(turn, state.ending, state.reasons) if back else _await_restored_pods(turn)
    if served.form == "Standard":
        return request_change(turn, home, "take back", "the canary is removed")
    away = served.rolled_out is None or served.rolled_out.uri != home.uri
    if served.asked.uri == home.uri:
        if restored or away:
            return request_change(turn, home, "clear", "the stable release is given all of the traffic")
        dark = served.asked.percent == 0
        return (
            _await_restored_pods(turn)
            if dark
            else request_change(turn, _at_zero_percent(home), "cut", "no user gets the canary")
        )
    waiting, cut = turn.but(blind=state.blind + turn.elapsed), _at_zero_percent(served.asked)
    if state.blind < CUT_SECONDS and (_revision_pending(turn) if not away else _newest_is_rolled_out(turn)):
        return (
            Decision(waiting.state)
            if served.asked == cut
            else request_change(waiting, cut, "cut", "no user gets the canary")
        )
    if not away:
        return request_change(turn, _at_zero_percent(home), "take back", "the stable release is asked for again")
    return request_change(turn, home, "take back", "the stable release is asked for again: no share of 0 would help")


def _revision_pending(turn: DecisionContext) -> bool:
    """Whether KServe has still to make what is asked for. Until it has, the stable revision before the canary is the
    newest one, and looks like the restored one."""
    newest = turn.served.newest
    return newest is None or newest.uri != turn.served.asked.uri


def _newest_is_rolled_out(turn: DecisionContext) -> bool:
    """Whether the newest revision is rolled out: a share of 0 makes KServe go back to the one before it."""
    newest, rolled_out = turn.served.newest, turn.served.rolled_out
    return newest is not None and rolled_out is not None and newest.name == rolled_out.name


def _in_flight(turn: DecisionContext) -> bool:
    """Whether a write of ours without a reply may still arrive: its version still stands, and it is young."""
    intent = turn.state.intent
    stands = intent is not None and intent.expected_resource_version == turn.served.resource_version
    return stands and turn.state.blind < FLIGHT_SECONDS


def _at_zero_percent(asked: DesiredModel) -> DesiredModel:
    return DesiredModel(uri=asked.uri, percent=0)


def _note_foreign_edit(turn: DecisionContext) -> DecisionContext:
    """An edit during the way back changes nothing about it, and is named."""
    if turn.served.asked == turn.state.asked:
        return turn
    return turn.noted("foreign edit", describe_edit(turn)).but(asked=turn.served.asked)


def _await_restored_pods(turn: DecisionContext) -> Decision:
    """Waits for the restored pods; ends without them where the stable model already has every user."""
    state = turn.state
    assert state.stable is not None, "known since Verify"
    waited = turn.but(blind=state.blind + turn.elapsed)
    served = turn.served.settled and turn.served.traffic.get(state.stable.uri) == 100
    if served and waited.state.blind >= turn.spec.deadline_seconds:
        late = f"the stable model serves everybody, but its new pods are not ready after {waited.state.blind:,.0f} s"
        return end_rollout(waited, state.ending, (*state.reasons, late))
    return Decision(waited.state)
