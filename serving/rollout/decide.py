"""What to do next: a pure function of what was read, the policy and the time.

    Verify -> Apply -> WaitReady -> Analyse (each step) -> Promote -> Done
                  \\__________________\\____________________\\__> Rollback -> Done

A decision is the next state, and at most one thing to ask of the InferenceService. Nothing is remembered elsewhere:
who reads the same decides the same, so that a restart, a lost reply or a second controller changes nothing.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from serving.rollout.ports import Proof, Served, Window
from serving.rollout.refusing import refusals
from serving.rollout.spec import RolloutSpec
from serving.rollout.state import Asked, Intent, Outcome, Phase, Stable, State, clock
from serving.rollout.weighing import entered, folded, harms, incredible, lacking

LONGEST_LOOK = 120.0
"""At most so much time is believed to have passed between two looks, whatever the clock says."""
BLIND_SECONDS = 240.0
"""A canary that nothing credible is seen of, or that dies, is taken back after so long: a scrape or two missed and
a restart of Prometheus are shorter."""
MOST_RESTORES = 3
FLIGHT_SECONDS = 90.0
"""After so long a request has been answered or dropped: the API server's own limit is 60 s."""
CUT_SECONDS = 120.0
"""How long KServe may take to give the traffic back to the revision before, once the share is 0."""


class Observed(NamedTuple):
    """All that was read for one look. `proofs` are of the release and of the stable model, in Verify alone."""

    spec: RolloutSpec
    state: State
    served: Served
    window: Window | None = None
    proofs: tuple[Proof, Proof] | None = None


class Decision(NamedTuple):
    state: State
    asked: Asked | None = None
    """What to ask of the InferenceService, once the state is written."""


class Turn(NamedTuple):
    """One look's facts, as the rules take them."""

    spec: RolloutSpec
    state: State
    served: Served
    window: Window | None
    proofs: tuple[Proof, Proof] | None
    now: float
    elapsed: float

    def but(self, **changes: Any) -> "Turn":
        return self._replace(state=self.state.model_copy(update=changes))

    def noted(self, action: str, why: str, weighed: bool = False) -> "Turn":
        return self._replace(state=self.state.noted(self.now, action, why, weighed))

    def canary(self, percent: int | None) -> Asked:
        return Asked(uri=self.spec.release.uri, percent=percent)

    @property
    def canary_ready(self) -> bool:
        newest = self.served.newest
        return self.served.settled and newest is not None and newest.uri == self.spec.release.uri and newest.ready


def decide(seen: Observed, now: float) -> Decision:
    """The next state, and what to ask for. A read older than one before it decides nothing."""
    if seen.state.phase == "Done" or seen.served.generation < seen.state.generation:
        return Decision(seen.state)
    turn = _watched(_confirmed(Turn(*seen, now=now, elapsed=0.0)))
    if turn.state.phase == "Verify":
        return _verify(turn)
    if turn.state.phase == "Rollback":
        return _bring_back(turn)
    return _aborted(turn) or _foreign(turn) or _late(turn) or RULES[turn.state.phase](turn)


def _watched(turn: Turn) -> Turn:
    """The time that passed under watch: none where the clock went back, little where it leapt or nobody looked."""
    passed = turn.now - (turn.now if turn.state.looked is None else turn.state.looked)
    elapsed = min(max(passed, 0.0), LONGEST_LOOK)
    counted = 0.0 if turn.spec.paused else elapsed
    return turn.but(looked=turn.now, watched=turn.state.watched + counted)._replace(elapsed=elapsed)


def _confirmed(turn: Turn) -> Turn:
    """What was meant to be written is there: it is ours now. Whether a reply came does not matter."""
    intent, served = turn.state.intent, turn.served
    if intent is None or served.asked != intent.asked:
        return turn.but(generation=served.generation)
    percent = turn.state.percent
    if intent.uri == turn.spec.release.uri:
        percent = 100 if intent.percent is None else intent.percent
    elif turn.state.phase == "Rollback":
        percent = 0
    return turn.but(intent=None, asked=served.asked, percent=percent, generation=served.generation)


def _verify(turn: Turn) -> Decision:
    """Nothing is asked for until release, stable model and cluster are known to be what a canary needs."""
    if turn.spec.abort:
        return _end(turn, "Aborted", ("aborted before anything was changed",))
    if turn.proofs is None:
        late = turn.state.watched >= turn.spec.deadline_seconds
        return _end(turn, "Refused", ("the release could not be verified in time",)) if late else Decision(turn.state)
    reasons = refusals(turn.spec, turn.served, *turn.proofs)
    if reasons:
        return _end(turn, "Refused", reasons)
    served, proof = turn.served, turn.proofs[1]
    stable = Stable(uri=served.asked.uri, digest=proof.digest, model=proof.model)
    why = f"release {turn.spec.release.digest[:12]} and stable {proof.digest[:12]} are proven"
    turn = turn.noted("verify", why).but(
        stable=stable, asked=served.asked, rest=served.rest, generation=served.generation
    )
    return Decision(turn.but(phase="Apply", watched=0.0).state)


def _aborted(turn: Turn) -> Decision | None:
    return _take_back(turn, "Aborted", ("aborted by a person",)) if turn.spec.abort else None


def _late(turn: Turn) -> Decision | None:
    if turn.state.watched < turn.spec.deadline_seconds:
        return None
    missing = lacking(turn.state, turn.spec) if turn.state.evidence else ("the canary was never measured",)
    return _take_back(turn, "RolledBack", (f"undecided after {turn.state.watched:,.0f} s", *missing))


def _foreign(turn: Turn) -> Decision | None:
    """Somebody else's edit: named, and stopped or put right as the policy says.

    Never put right: what was changed beside model and share, which we do not know, and a person's own way back.
    """
    served, state = turn.served, turn.state
    if served.asked == state.asked and served.rest == state.rest:
        return None
    what = _edited(turn)
    turn = turn.but(asked=served.asked, restored=state.restored + 1)
    if not _began(state):
        if state.restored >= MOST_RESTORES:
            return _end(turn, "Refused", (what, "and that again and again: nothing was begun"))
        return Decision(turn.noted("verify again", what).but(phase="Verify").state)
    by_hand = state.stable is not None and served.asked.uri == state.stable.uri
    if turn.spec.foreign_edits == "Stop" or by_hand or served.rest != state.rest:
        return _take_back(turn, "RolledBack", (what,))
    if state.restored >= MOST_RESTORES:
        return _take_back(turn, "RolledBack", (what, f"and that after being put right {state.restored} times"))
    return _apply(turn.noted("restore", what).but(phase="Apply", intent=None))


def _began(state: State) -> bool:
    """Whether anything may have been asked for by us, though no reply came."""
    home = state.asked is not None and state.stable is not None and state.asked.uri == state.stable.uri
    return state.intent is not None or not home


def _edited(turn: Turn) -> str:
    who = turn.served.editor or "somebody"
    same = turn.served.asked == turn.state.asked
    return f"{who} changed what is served: {'not the model, but its pods' if same else turn.served.asked}"


def _apply(turn: Turn) -> Decision:
    """The canary is asked for at 0 % first: a share given to pods that are not ready is served by the old model."""
    dark = turn.canary(0)
    if turn.served.asked == dark:
        return Decision(turn.but(phase="WaitReady", blind=0.0).state)
    return _ask(turn, dark, "apply", "the canary starts without users")


def _wait_ready(turn: Turn) -> Decision:
    newest = turn.served.newest
    if turn.canary_ready and newest is not None:
        ready = turn.noted("ready", f"revision {newest.name} is rolled out")
        return Decision(
            ready._replace(state=entered(ready.state, turn.spec, turn.state.step)).but(phase="Analyse").state
        )
    if newest is not None and newest.uri == turn.spec.release.uri and newest.failed:
        return _blind(turn, f"the canary's pods fail: {newest.failed}")
    return Decision(turn.but(blind=0.0).state)


def _analyse(turn: Turn) -> Decision:
    percent = turn.spec.steps[turn.state.step]
    if turn.spec.promote and turn.canary_ready and turn.state.intent is None:
        return _promote(turn.noted("promote", "by a person's word", weighed=True).but(phase="Promote", blind=0.0))
    if turn.served.asked != turn.canary(percent):
        if not turn.canary_ready:
            return _blind(turn, "the canary is no longer ready")
        return _ask(turn, turn.canary(percent), "step", f"the canary is given {percent} %")
    why = _unserved(turn, percent) or incredible(turn.window, percent, turn.state.cursor)
    if why or turn.window is None:
        return _blind(turn, why)
    return _weighed(turn._replace(state=folded(turn.state, turn.window)))


def _unserved(turn: Turn, percent: int) -> str:
    """Why the canary does not really serve what it is asked to."""
    if not turn.canary_ready:
        return "the canary is not ready: the stable model answers for it"
    share = turn.served.traffic.get(turn.spec.release.uri, 0)
    assert turn.state.stable is not None, "known since Verify"
    others = turn.served.traffic.get(turn.state.stable.uri, 0)
    if (share, others) != (percent, 100 - percent):
        return f"the traffic is {share} % canary and {others} % stable, not {percent} and {100 - percent} %"
    return ""


def _weighed(turn: Turn) -> Decision:
    worse = harms(turn.state)
    if worse:
        return _take_back(turn, "RolledBack", worse)
    if turn.spec.paused or lacking(turn.state, turn.spec):
        return Decision(turn.state)
    step = turn.state.step + 1
    passed = turn.noted(
        "pass", f"{turn.spec.steps[turn.state.step]} % is earned: every check is passed", weighed=True
    )
    if turn.spec.steps[step] == 100:
        return _promote(passed.but(phase="Promote", blind=0.0))
    return _analyse(passed._replace(state=entered(passed.state, turn.spec, step)))


def _promote(turn: Turn) -> Decision:
    """The share is cleared at the very version that was read, so that nothing newer is promoted by it."""
    whole = turn.canary(None)
    if turn.served.asked != whole:
        if not turn.canary_ready:
            return _blind(turn, "the canary is no longer ready")
        return _ask(turn, whole, "promote", "the canary is given all of the traffic")
    rolled_out = turn.served.rolled_out
    serves = turn.served.traffic.get(turn.spec.release.uri) == 100
    if turn.canary_ready and serves and rolled_out is not None and rolled_out.uri == turn.spec.release.uri:
        return _end(turn, "Promoted", ())
    return _blind(turn, "the promotion is not carried out")


def _bring_back(turn: Turn) -> Decision:
    """Back to the stable release. The share is cleared last: until then the newest ready revision is the bad one.

    Where the newest revision was rolled out already, a share of 0 makes KServe go back to the one before it. That
    helps while the newest is the bad one, and must never be asked for once it is the restored one.
    """
    turn = _named(turn)
    state, served = turn.state, turn.served
    assert state.stable is not None, "known since Verify"
    home = Asked(uri=state.stable.uri)
    restored = served.settled and served.newest is not None and served.newest.uri == home.uri and served.newest.ready
    if served.asked == home:
        back = restored and served.traffic.get(home.uri) == 100 and not _in_flight(turn)
        return _end(turn, state.ending, state.reasons) if back else _unrestored(turn)
    if served.form == "Standard":
        return _ask(turn, home, "take back", "the canary is removed")
    away = served.rolled_out is None or served.rolled_out.uri != home.uri
    if served.asked.uri == home.uri:
        if restored or away:
            return _ask(turn, home, "clear", "the stable release is given all of the traffic")
        dark = served.asked.percent == 0
        return _unrestored(turn) if dark else _ask(turn, _none_of(home), "cut", "no user gets the canary")
    if not away:
        return _ask(turn, _none_of(home), "take back", "the stable release is asked for again")
    newest_rolled = served.newest and served.rolled_out and served.newest.name == served.rolled_out.name
    if not newest_rolled or state.blind >= CUT_SECONDS:
        return _ask(turn, home, "take back", "the stable release is asked for again: no share of 0 would help")
    waiting, cut = turn.but(blind=state.blind + turn.elapsed), _none_of(served.asked)
    return Decision(waiting.state) if served.asked == cut else _ask(waiting, cut, "cut", "no user gets the canary")


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
    return turn.noted("foreign edit", _edited(turn)).but(asked=turn.served.asked)


def _unrestored(turn: Turn) -> Decision:
    """Waits for the restored pods; ends without them where the stable model already has every user."""
    state = turn.state
    assert state.stable is not None, "known since Verify"
    waited = turn.but(blind=state.blind + turn.elapsed)
    served = turn.served.settled and turn.served.traffic.get(state.stable.uri) == 100
    if served and waited.state.blind >= turn.spec.deadline_seconds:
        late = f"the stable model serves everybody, but its new pods are not ready after {waited.state.blind:,.0f} s"
        return _end(waited, state.ending, (*state.reasons, late))
    return Decision(waited.state)


def _blind(turn: Turn, why: str) -> Decision:
    """One more look that showed nothing of the canary; too many, and it is taken back. The first is noted."""
    blind = turn.state.blind + turn.elapsed
    turn = turn.noted("blind", why) if not turn.state.blind else turn
    turn = turn.but(blind=blind)
    return (
        _take_back(turn, "RolledBack", (f"{why}, for {blind:,.0f} s",))
        if blind >= BLIND_SECONDS
        else Decision(turn.state)
    )


def _take_back(turn: Turn, ending: Outcome, reasons: tuple[str, ...]) -> Decision:
    turn = turn.noted("roll back", "; ".join(reasons), weighed=turn.state.phase == "Analyse")
    return _bring_back(turn.but(phase="Rollback", ending=ending, reasons=reasons, blind=0.0))


def _ask(turn: Turn, asked: Asked, action: str, why: str) -> Decision:
    """Write down what is meant first; only a person's pause holds it, and never a rollback."""
    if turn.spec.paused and turn.state.phase != "Rollback":
        return Decision(turn.state)
    intent = Intent(
        action=action,
        uri=asked.uri,
        percent=asked.percent,
        expected_resource_version=turn.served.resource_version,
        at=clock(turn.now),
    )
    return Decision(turn.noted(action, why).but(intent=intent).state, asked)


def _end(turn: Turn, outcome: Outcome, reasons: tuple[str, ...]) -> Decision:
    why = "; ".join(reasons) or "the canary serves everybody"
    done = turn.but(phase="Done", outcome=outcome, reasons=reasons, intent=None)
    return Decision(done.noted(outcome, why).state)


RULES: dict[Phase, Callable[[Turn], Decision]] = {
    "Apply": _apply,
    "WaitReady": _wait_ready,
    "Analyse": _analyse,
    "Promote": _promote,
}
