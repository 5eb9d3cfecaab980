"""The way back to the stable release, and when it has been gone."""

from serving.rollout.state import Asked, Outcome
from serving.rollout.turn import Decision, Turn, ask, edited, end

CUT_SECONDS = 120.0
"""How long KServe may take to give the traffic back to the revision before, once the share is 0."""
FLIGHT_SECONDS = 90.0
"""After so long a request has been answered or dropped: the API server's own limit is 60 s."""


def take_back(turn: Turn, ending: Outcome, reasons: tuple[str, ...]) -> Decision:
    turn = turn.noted("roll back", "; ".join(reasons), weighed=turn.state.phase == "Analyse")
    return bring_back(turn.but(phase="Rollback", ending=ending, reasons=reasons, blind=0.0))


def bring_back(turn: Turn) -> Decision:
    """Back to the stable release. The share is cleared last: until then the newest ready revision is the bad one.

    Where the newest revision was rolled out already, a share of 0 makes KServe go back to the one before it. That
    helps while the newest is the bad one, and must never be asked for once it is the restored one.
    """
    return _homeward(_named(turn))


def _homeward(turn: Turn) -> Decision:
    state, served = turn.state, turn.served
    assert state.stable is not None, "known since Verify"
    home = Asked(uri=state.stable.uri)
    restored = served.settled and served.newest is not None and served.newest.uri == home.uri and served.newest.ready
    if served.asked == home:
        back = restored and served.traffic.get(home.uri) == 100 and not _in_flight(turn)
        return end(turn, state.ending, state.reasons) if back else _unrestored(turn)
    if served.form == "Standard":
        return ask(turn, home, "take back", "the canary is removed")
    away = served.rolled_out is None or served.rolled_out.uri != home.uri
    if served.asked.uri == home.uri:
        if restored or away:
            return ask(turn, home, "clear", "the stable release is given all of the traffic")
        dark = served.asked.percent == 0
        return _unrestored(turn) if dark else ask(turn, _none_of(home), "cut", "no user gets the canary")
    waiting, cut = turn.but(blind=state.blind + turn.elapsed), _none_of(served.asked)
    if state.blind < CUT_SECONDS and (_unmade(turn) if not away else _has_all(turn)):
        return Decision(waiting.state) if served.asked == cut else ask(waiting, cut, "cut", "no user gets the canary")
    if not away:
        return ask(turn, _none_of(home), "take back", "the stable release is asked for again")
    return ask(turn, home, "take back", "the stable release is asked for again: no share of 0 would help")


def _unmade(turn: Turn) -> bool:
    """Whether KServe has still to make what is asked for. Until it has, the stable revision before the canary is the
    newest one, and looks like the restored one."""
    newest = turn.served.newest
    return newest is None or newest.uri != turn.served.asked.uri


def _has_all(turn: Turn) -> bool:
    """Whether the newest revision is rolled out: a share of 0 makes KServe go back to the one before it."""
    newest, rolled_out = turn.served.newest, turn.served.rolled_out
    return newest is not None and rolled_out is not None and newest.name == rolled_out.name


def _in_flight(turn: Turn) -> bool:
    """Whether a write of ours without a reply may still arrive: its version still stands, and it is young."""
    intent = turn.state.intent
    stands = intent is not None and intent.expected_resource_version == turn.served.resource_version
    return stands and turn.state.blind < FLIGHT_SECONDS


def _none_of(asked: Asked) -> Asked:
    return Asked(uri=asked.uri, percent=0)


def _named(turn: Turn) -> Turn:
    """An edit during the way back changes nothing about it, and is named."""
    if turn.served.asked == turn.state.asked:
        return turn
    return turn.noted("foreign edit", edited(turn)).but(asked=turn.served.asked)


def _unrestored(turn: Turn) -> Decision:
    """Waits for the restored pods; ends without them where the stable model already has every user."""
    state = turn.state
    assert state.stable is not None, "known since Verify"
    waited = turn.but(blind=state.blind + turn.elapsed)
    served = turn.served.settled and turn.served.traffic.get(state.stable.uri) == 100
    if served and waited.state.blind >= turn.spec.deadline_seconds:
        late = f"the stable model serves everybody, but its new pods are not ready after {waited.state.blind:,.0f} s"
        return end(waited, state.ending, (*state.reasons, late))
    return Decision(waited.state)
