"""What to do next: a pure function of what was read, the policy and the time.

    Verify -> Apply -> WaitReady -> Analyse (each step) -> Promote -> Done
                  \\__________________\\____________________\\__> Rollback -> Done

A decision is the next state, and at most one thing to ask of the InferenceService. Nothing is remembered elsewhere:
who reads the same decides the same, so that a restart, a lost reply or a second controller changes nothing.
"""

from collections.abc import Callable

from serving.rollout import first
from serving.rollout.refusing import refusals
from serving.rollout.returning import bring_back, take_back
from serving.rollout.state import Phase, Stable, State
from serving.rollout.turn import Decision, Observed, Turn, ask, edited, end
from serving.rollout.weighing import entered, folded, harms, incredible, lacking

LONGEST_LOOK = 120.0
"""At most so much time is believed to have passed between two looks, whatever the clock says."""
BLIND_SECONDS = 240.0
"""A canary that nothing credible is seen of, or that dies, is taken back after so long: a scrape or two missed and
a restart of Prometheus are shorter."""
NOTED_SECONDS = 15.0
"""Less is a look between two scrapes, or while a change is being carried out: no news."""
MOST_RESTORES = 3


def decide(seen: Observed, now: float) -> Decision:
    """The next state, and what to ask for. A read older than one before it decides nothing."""
    if seen.state.phase == "Done":
        return Decision(seen.state)
    if seen.state.uid and seen.served.uid != seen.state.uid:
        why = "the InferenceService was deleted, or made anew: the one that this was about is gone"
        return end(Turn(*seen, now=now, elapsed=0.0), "Aborted", (why,))
    if seen.served.generation < seen.state.generation:
        return Decision(seen.state)
    turn = _watched(_confirmed(Turn(*seen, now=now, elapsed=0.0)))
    if turn.state.phase == "Verify":
        return _verify(turn)
    if turn.state.stable is None:
        return first.follow(turn)
    if turn.state.phase == "Rollback":
        return bring_back(turn)
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
    turn = turn.but(generation=served.generation, uid=served.uid)
    if intent is None or served.asked != intent.asked:
        return turn
    percent = turn.state.percent
    if intent.uri == turn.spec.release.uri:
        percent = 100 if intent.percent is None else intent.percent
    elif turn.state.phase == "Rollback":
        percent = 0
    return turn.but(intent=None, asked=served.asked, percent=percent)


def _verify(turn: Turn) -> Decision:
    """Nothing is asked for until release, stable model and cluster are known to be what a canary needs."""
    if turn.spec.abort:
        return end(turn, "Aborted", ("aborted before anything was changed",))
    if turn.proofs is None:
        late = turn.state.watched >= turn.spec.deadline_seconds
        why = "the release could not be verified yet: its store or the trust policy gave no answer"
        return (
            end(turn, "Refused", (f"{why}, and that in time",))
            if late
            else Decision(turn.noted("unverified", why).state)
        )
    served, (canary, proof) = turn.served, turn.proofs
    if proof is None:
        return first.begin(turn, canary)
    reasons = refusals(turn.spec, served, canary, proof)
    if reasons:
        return end(turn, "Refused", reasons)
    stable = Stable(uri=served.asked.uri, digest=proof.digest, model=proof.model)
    why = f"release {turn.spec.release.digest[:12]} and stable {proof.digest[:12]} are proven"
    turn = turn.noted("verify", why).but(
        stable=stable, asked=served.asked, rest=served.rest, generation=served.generation
    )
    return Decision(turn.but(phase="Apply", watched=0.0).state)


def _aborted(turn: Turn) -> Decision | None:
    return take_back(turn, "Aborted", ("aborted by a person",)) if turn.spec.abort else None


def _late(turn: Turn) -> Decision | None:
    if turn.state.watched < turn.spec.deadline_seconds or turn.state.phase == "Promote":
        return None  # it was decided in time; a promotion that is not carried out is blind
    missing = lacking(turn.state, turn.spec) if turn.state.evidence else ("the canary was never measured",)
    return take_back(turn, "RolledBack", (f"undecided after {turn.state.watched:,.0f} s", *missing))


def _foreign(turn: Turn) -> Decision | None:
    """Somebody else's edit: named, and stopped or put right as the policy says.

    Never put right: what was changed beside model and share, which we do not know, and a person's own way back.
    """
    served, state = turn.served, turn.state
    if served.asked == state.asked and served.rest == state.rest:
        return None
    what = edited(turn)
    turn = turn.but(asked=served.asked, restored=state.restored + 1)
    if not _began(state):
        if state.restored >= MOST_RESTORES:
            return end(turn, "Refused", (what, "and that again and again: nothing was begun"))
        return Decision(turn.noted("verify again", what).but(phase="Verify").state)
    by_hand = state.stable is not None and served.asked.uri == state.stable.uri
    if turn.spec.foreign_edits == "Stop" or by_hand or served.rest != state.rest:
        return take_back(turn, "RolledBack", (what,))
    if state.restored >= MOST_RESTORES:
        return take_back(turn, "RolledBack", (what, f"and that after being put right {state.restored} times"))
    return _apply(turn.noted("restore", what).but(phase="Apply", intent=None))


def _began(state: State) -> bool:
    """Whether anything may have been asked for by us, though no reply came."""
    home = state.asked is not None and state.stable is not None and state.asked.uri == state.stable.uri
    return state.intent is not None or not home


def _apply(turn: Turn) -> Decision:
    """The canary is asked for at 0 % first: a share given to pods that are not ready is served by the old model."""
    dark = turn.canary(0)
    if turn.served.asked == dark:
        return Decision(turn.but(phase="WaitReady", blind=0.0).state)
    return ask(turn, dark, "apply", "the canary starts without users")


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
        return ask(turn, turn.canary(percent), "step", f"the canary is given {percent} %")
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
        return take_back(turn, "RolledBack", worse)
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
        return ask(turn, whole, "promote", "the canary is given all of the traffic")
    rolled_out = turn.served.rolled_out
    serves = turn.served.traffic.get(turn.spec.release.uri) == 100
    if turn.canary_ready and serves and rolled_out is not None and rolled_out.uri == turn.spec.release.uri:
        return end(turn, "Promoted", ())
    return _blind(turn, "the promotion is not carried out")


def _blind(turn: Turn, why: str) -> Decision:
    """One more look that showed nothing of the canary; too many, and it is taken back. What lasts is noted."""
    blind = turn.state.blind + turn.elapsed
    turn = turn.noted("blind", why) if turn.state.blind < NOTED_SECONDS <= blind else turn
    turn = turn.but(blind=blind)
    return (
        take_back(turn, "RolledBack", (f"{why}, for {blind:,.0f} s",))
        if blind >= BLIND_SECONDS
        else Decision(turn.state)
    )


RULES: dict[Phase, Callable[[Turn], Decision]] = {
    "Apply": _apply,
    "WaitReady": _wait_ready,
    "Analyse": _analyse,
    "Promote": _promote,
}
