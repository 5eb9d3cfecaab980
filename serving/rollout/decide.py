"""What to do next: a pure function of what was read, the policy and the time.

    Verify -> Apply -> WaitReady -> Analyse (each step) -> Promote -> Done
                  \\__________________\\____________________\\__> Rollback -> Done

A decision is the next state, and at most one thing to ask of the InferenceService. Nothing is remembered elsewhere:
who reads the same decides the same, so that a restart, a lost reply or a second controller changes nothing.
"""

from collections.abc import Callable

from serving.rollout import first_model
from serving.rollout.canary_analysis import (
    credibility_problem,
    enter_step,
    fold_window,
    harmful_checks,
    missing_evidence,
)
from serving.rollout.decision_context import (
    Decision,
    DecisionContext,
    Observation,
    describe_edit,
    end_rollout,
    request_change,
)
from serving.rollout.preconditions import unmet_preconditions
from serving.rollout.rollback import continue_rollback, start_rollback
from serving.rollout.state import Phase, StableRelease, State

LONGEST_LOOK = 120.0
"""At most so much time is believed to have passed between two looks, whatever the clock says."""
BLIND_SECONDS = 240.0
"""A canary that nothing credible is seen of, or that dies, is taken back after so long: a scrape or two missed and
a restart of Prometheus are shorter."""
BLIND_NOTED_SECONDS = 15.0
"""Less is a look between two scrapes, or while a change is being carried out: no news."""
MOST_RESTORES = 3


def decide(seen: Observation, now: float) -> Decision:
    """The next state, and what to ask for. A read older than one before it decides nothing."""
    if seen.state.phase == "Done":
        return Decision(seen.state)
    if seen.state.uid and seen.served.uid != seen.state.uid:
        why = "the InferenceService was deleted, or made anew: the one that this was about is gone"
        return end_rollout(DecisionContext(*seen, now=now, elapsed=0.0), "Aborted", (why,))
    if seen.served.generation < seen.state.generation:
        return Decision(seen.state)
    turn = _add_watched_time(_confirm_intent(DecisionContext(*seen, now=now, elapsed=0.0)))
    if turn.state.phase == "Verify":
        return _verify(turn)
    if turn.state.stable is None:
        return first_model.advance(turn)
    if turn.state.phase == "Rollback":
        return continue_rollback(turn)
    return (
        _handle_abort(turn)
        or _handle_foreign_edit(turn)
        or _handle_deadline(turn)
        or PHASE_RULES[turn.state.phase](turn)
    )


def _add_watched_time(turn: DecisionContext) -> DecisionContext:
    """The time that passed under watch: none where the clock went back, little where it leapt or nobody looked."""
    passed = turn.now - (turn.now if turn.state.looked is None else turn.state.looked)
    elapsed = min(max(passed, 0.0), LONGEST_LOOK)
    counted = 0.0 if turn.spec.paused else elapsed
    return turn.but(looked=turn.now, watched=turn.state.watched + counted)._replace(elapsed=elapsed)


def _confirm_intent(turn: DecisionContext) -> DecisionContext:
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


def _verify(turn: DecisionContext) -> Decision:
    """Nothing is asked for until release, stable model and cluster are known to be what a canary needs."""
    if turn.spec.abort:
        return end_rollout(turn, "Aborted", ("aborted before anything was changed",))
    if turn.proofs is None:
        late = turn.state.watched >= turn.spec.deadline_seconds
        why = "the release could not be verified yet: its store or the trust policy gave no answer"
        return (
            end_rollout(turn, "Refused", (f"{why}, and that in time",))
            if late
            else Decision(turn.noted("unverified", why).state)
        )
    served, (canary, proof) = turn.served, turn.proofs
    if proof is None:
        return first_model.begin(turn, canary)
    reasons = unmet_preconditions(turn.spec, served, canary, proof)
    if reasons:
        return end_rollout(turn, "Refused", reasons)
    stable = StableRelease(uri=served.asked.uri, digest=proof.digest, model=proof.model)
    why = f"release {turn.spec.release.digest[:12]} and stable {proof.digest[:12]} are proven"
    turn = turn.noted("verify", why).but(
        stable=stable, asked=served.asked, rest=served.rest, generation=served.generation
    )
    return Decision(turn.but(phase="Apply", watched=0.0).state)


def _handle_abort(turn: DecisionContext) -> Decision | None:
    return start_rollback(turn, "Aborted", ("aborted by a person",)) if turn.spec.abort else None


def _handle_deadline(turn: DecisionContext) -> Decision | None:
    if turn.state.watched < turn.spec.deadline_seconds or turn.state.phase == "Promote":
        return None  # it was decided in time; a promotion that is not carried out is blind
    missing = missing_evidence(turn.state, turn.spec) if turn.state.evidence else ("the canary was never measured",)
    return start_rollback(turn, "RolledBack", (f"undecided after {turn.state.watched:,.0f} s", *missing))


def _handle_foreign_edit(turn: DecisionContext) -> Decision | None:
    """Somebody else's edit: named, and stopped or put right as the policy says.

    Never put right: what was changed beside model and share, which we do not know, and a person's own way back.
    """
    served, state = turn.served, turn.state
    if served.asked == state.asked and served.rest == state.rest:
        return None
    what = describe_edit(turn)
    turn = turn.but(asked=served.asked, restored=state.restored + 1)
    if not _change_requested(state):
        if state.restored >= MOST_RESTORES:
            return end_rollout(turn, "Refused", (what, "and that again and again: nothing was begun"))
        return Decision(turn.noted("verify again", what).but(phase="Verify").state)
    by_hand = state.stable is not None and served.asked.uri == state.stable.uri
    if turn.spec.foreign_edits == "Stop" or by_hand or served.rest != state.rest:
        return start_rollback(turn, "RolledBack", (what,))
    if state.restored >= MOST_RESTORES:
        return start_rollback(turn, "RolledBack", (what, f"and that after being put right {state.restored} times"))
    return _apply(turn.noted("restore", what).but(phase="Apply", intent=None))


def _change_requested(state: State) -> bool:
    """Whether anything may have been asked for by us, though no reply came."""
    home = state.asked is not None and state.stable is not None and state.asked.uri == state.stable.uri
    return state.intent is not None or not home


def _apply(turn: DecisionContext) -> Decision:
    """The canary is asked for at 0 % first: a share given to pods that are not ready is served by the old model."""
    dark = turn.canary(0)
    if turn.served.asked == dark:
        return Decision(turn.but(phase="WaitReady", blind=0.0).state)
    return request_change(turn, dark, "apply", "the canary starts without users")


def _wait_ready(turn: DecisionContext) -> Decision:
    newest = turn.served.newest
    if turn.canary_ready and newest is not None:
        ready = turn.noted("ready", f"revision {newest.name} is rolled out")
        return Decision(
            ready._replace(state=enter_step(ready.state, turn.spec, turn.state.step)).but(phase="Analyse").state
        )
    if newest is not None and newest.uri == turn.spec.release.uri and newest.failed:
        return _add_blind_time(turn, f"the canary's pods fail: {newest.failed}")
    return Decision(turn.but(blind=0.0).state)


def _analyse(turn: DecisionContext) -> Decision:
    percent = turn.spec.steps[turn.state.step]
    if turn.spec.promote and turn.canary_ready and turn.state.intent is None:
        return _promote(turn.noted("promote", "by a person's word", weighed=True).but(phase="Promote", blind=0.0))
    if turn.served.asked != turn.canary(percent):
        if not turn.canary_ready:
            return _add_blind_time(turn, "the canary is no longer ready")
        return request_change(turn, turn.canary(percent), "step", f"the canary is given {percent} %")
    why = _traffic_problem(turn, percent) or credibility_problem(turn.window, percent, turn.state.cursor)
    if why or turn.window is None:
        return _add_blind_time(turn, why)
    return _decide_on_evidence(turn._replace(state=fold_window(turn.state, turn.window)))


def _traffic_problem(turn: DecisionContext, percent: int) -> str:
    """Why the canary does not really serve what it is asked to."""
    if not turn.canary_ready:
        return "the canary is not ready: the stable model answers for it"
    share = turn.served.traffic.get(turn.spec.release.uri, 0)
    assert turn.state.stable is not None, "known since Verify"
    others = turn.served.traffic.get(turn.state.stable.uri, 0)
    if (share, others) != (percent, 100 - percent):
        return f"the traffic is {share} % canary and {others} % stable, not {percent} and {100 - percent} %"
    return ""


def _decide_on_evidence(turn: DecisionContext) -> Decision:
    worse = harmful_checks(turn.state)
    if worse:
        return start_rollback(turn, "RolledBack", worse)
    if turn.spec.paused or missing_evidence(turn.state, turn.spec):
        return Decision(turn.state)
    step = turn.state.step + 1
    passed = turn.noted(
        "pass", f"{turn.spec.steps[turn.state.step]} % is earned: every check is passed", weighed=True
    )
    if turn.spec.steps[step] == 100:
        return _promote(passed.but(phase="Promote", blind=0.0))
    return _analyse(passed._replace(state=enter_step(passed.state, turn.spec, step)))


def _promote(turn: DecisionContext) -> Decision:
    """The share is cleared at the very version that was read, so that nothing newer is promoted by it."""
    whole = turn.canary(None)
    if turn.served.asked != whole:
        if not turn.canary_ready:
            return _add_blind_time(turn, "the canary is no longer ready")
        return request_change(turn, whole, "promote", "the canary is given all of the traffic")
    rolled_out = turn.served.rolled_out
    serves = turn.served.traffic.get(turn.spec.release.uri) == 100
    if turn.canary_ready and serves and rolled_out is not None and rolled_out.uri == turn.spec.release.uri:
        return end_rollout(turn, "Promoted", ())
    return _add_blind_time(turn, "the promotion is not carried out")


def _add_blind_time(turn: DecisionContext, why: str) -> Decision:
    """One more look that showed nothing of the canary; too many, and it is taken back. What lasts is noted."""
    blind = turn.state.blind + turn.elapsed
    turn = turn.noted("blind", why) if turn.state.blind < BLIND_NOTED_SECONDS <= blind else turn
    turn = turn.but(blind=blind)
    return (
        start_rollback(turn, "RolledBack", (f"{why}, for {blind:,.0f} s",))
        if blind >= BLIND_SECONDS
        else Decision(turn.state)
    )


PHASE_RULES: dict[Phase, Callable[[DecisionContext], Decision]] = {
    "Apply": _apply,
    "WaitReady": _wait_ready,
    "Analyse": _analyse,
    "Promote": _promote,
}
