"""Decide the next state of a rollout, and at most one change of the InferenceService, by pure functions.

    Verify -> Apply -> WaitReady -> Analyse (each step) -> Promote -> Done
                  \\__________________\\____________________\\__> Rollback -> Done

The decision depends only on the objects that were read, which include the state, and on the time. So a restart, a
lost reply or a second controller changes nothing.
"""

from collections.abc import Callable

from serving.rollout import first_model
from serving.rollout.canary_analysis import (
    counted_seconds,
    credibility_problem,
    enter_step,
    fold_window,
    harmful_checks,
    missing_evidence,
)
from serving.rollout.decision_context import (
    Decision,
    DecisionContext,
    describe_edit,
    end_rollout,
    request_change,
    unmet_preconditions,
)
from serving.rollout.rollback import continue_rollback, start_rollback
from serving.rollout.state import Phase, StableRelease, State

BLIND_SECONDS = 240.0
"""Seconds without credible evidence, or with failing pods, after which a canary is rolled back. One or two missed
scrapes and a restart of Prometheus take less time."""
BLIND_NOTED_SECONDS = 15.0
"""Seconds without credible evidence after which a record is written. Shorter gaps are normal, such as between two
scrapes or while KServe carries out a change."""
MOST_RESTORES = 3
"""Number of edits by other programs that are undone. At the next edit the canary is rolled back."""


def decide(context: DecisionContext) -> Decision:
    """Decide the next state and the change to request. An outdated read of the InferenceService changes nothing."""
    state, service = context.state, context.service
    if state.phase == "Done":
        return Decision(state)
    if state.uid and service.uid != state.uid:
        why = "the InferenceService was deleted, or made anew: the one that this was about is gone"
        return end_rollout(context, "Aborted", (why,))
    if service.generation < state.generation:
        return Decision(state)
    context = _add_watched_time(_confirm_intent(context))
    if context.state.phase == "Verify":
        return _verify(context)
    if context.state.stable is None:
        return first_model.advance(context)
    if context.state.phase == "Rollback":
        return continue_rollback(context)
    if context.spec.abort:
        return start_rollback(context, "Aborted", ("aborted by a person",))
    rule = PHASE_RULES[context.state.phase]
    return _handle_foreign_edit(context) or _handle_deadline(context) or rule(context)


def _add_watched_time(context: DecisionContext) -> DecisionContext:
    """Add the time since the last reconcile, limited by counted_seconds(). A pause does not count as watched time."""
    last = context.state.last_reconciled
    elapsed = 0.0 if last is None else counted_seconds(context.now - last)
    watched = context.state.watched + (0.0 if context.spec.paused else elapsed)
    return context.with_state(last_reconciled=context.now, watched=watched)._replace(elapsed=elapsed)


def _confirm_intent(context: DecisionContext) -> DecisionContext:
    """Treat an intended write as done if the InferenceService shows it, even if its reply was lost."""
    intent, service = context.state.intent, context.service
    context = context.with_state(generation=service.generation, uid=service.uid)
    if intent is None or service.desired != intent.desired:
        return context
    percent = context.state.percent
    if intent.uri == context.spec.release.uri:
        percent = 100 if intent.percent is None else intent.percent
    elif context.state.phase == "Rollback":
        percent = 0
    return context.with_state(intent=None, desired=service.desired, percent=percent)


def _verify(context: DecisionContext) -> Decision:
    """Verify the release, the stable model and the preconditions of a canary. No change is requested before that."""
    if context.spec.abort:
        return end_rollout(context, "Aborted", ("aborted before anything was changed",))
    if context.proofs is None:
        why = "the release could not be verified yet: its store or the trust policy gave no answer"
        if context.state.watched >= context.spec.deadline_seconds:
            return end_rollout(context, "Refused", (f"{why}; the deadline has passed",))
        return Decision(context.with_record("unverified", why).state)
    service, (canary, proof) = context.service, context.proofs
    if proof is None:
        return first_model.begin(context, canary)
    reasons = unmet_preconditions(context.spec, service, canary, proof)
    if reasons:
        return end_rollout(context, "Refused", reasons)
    stable = StableRelease(uri=service.desired.uri, digest=proof.digest, model=proof.model)
    why = f"release {context.spec.release.digest[:12]} and stable {proof.digest[:12]} are proven"
    context = context.with_record("verify", why).with_state(
        phase="Apply",
        watched=0.0,
        stable=stable,
        desired=service.desired,
        rest=service.rest,
        generation=service.generation,
    )
    return Decision(context.state)


def _handle_deadline(context: DecisionContext) -> Decision | None:
    # A promotion was decided in time. If it is not carried out, the time counts as blind.
    if context.state.watched < context.spec.deadline_seconds or context.state.phase == "Promote":
        return None
    missing: tuple[str, ...] = ("the canary was never measured",)
    if context.state.evidence:
        missing = missing_evidence(context.state, context.spec)
    return start_rollback(context, "RolledBack", (f"undecided after {context.state.watched:,.0f} s", *missing))


def _handle_foreign_edit(context: DecisionContext) -> Decision | None:
    """Handle an edit of the InferenceService by another program: roll back or undo it, as the policy says.

    Two kinds of edits are never undone: edits of anything but model and share, because the state does not have the
    former values, and a person's own return to the stable model.
    """
    service, state = context.service, context.state
    if service.desired == state.desired and service.rest == state.rest:
        return None
    edit = describe_edit(context)
    context = context.with_state(desired=service.desired, restored=state.restored + 1)
    if not _change_requested(state):
        if state.restored >= MOST_RESTORES:
            return end_rollout(context, "Refused", (edit, "and that again and again: nothing was begun"))
        return Decision(context.with_record("verify again", edit).with_state(phase="Verify").state)
    by_hand = state.stable is not None and service.desired.uri == state.stable.uri
    if context.spec.foreign_edits == "Stop" or by_hand or service.rest != state.rest:
        return start_rollback(context, "RolledBack", (edit,))
    if state.restored >= MOST_RESTORES:
        return start_rollback(context, "RolledBack", (edit, f"and that after being put right {state.restored} times"))
    return _apply(context.with_record("restore", edit).with_state(phase="Apply", intent=None))


def _change_requested(state: State) -> bool:
    """True if the controller may have changed the InferenceService, even if no reply came."""
    asks_for_stable = state.desired and state.stable and state.desired.uri == state.stable.uri
    return state.intent is not None or not asks_for_stable


def _apply(context: DecisionContext) -> Decision:
    # Start at 0 %, because KServe lets the old model answer for a canary whose pods are not ready.
    dark = context.canary_at(0)
    if context.service.desired == dark:
        return Decision(context.with_state(phase="WaitReady", blind=0.0).state)
    return request_change(context, dark, "apply", "the canary starts without users")


def _wait_ready(context: DecisionContext) -> Decision:
    newest = context.service.newest
    if context.canary_ready and newest is not None:
        context = context.with_record("ready", f"revision {newest.name} is rolled out").with_state(phase="Analyse")
        return Decision(enter_step(context.state, context.spec, context.state.step))
    if newest is not None and newest.uri == context.spec.release.uri and newest.failed:
        return _add_blind_time(context, f"the canary's pods fail: {newest.failed}")
    return Decision(context.with_state(blind=0.0).state)


def _analyse(context: DecisionContext) -> Decision:
    percent = context.spec.steps[context.state.step]
    if context.spec.promote and context.canary_ready and context.state.intent is None:
        context = context.with_record("promote", "by a person's word", with_figures=True)
        return _promote(context.with_state(phase="Promote", blind=0.0))
    if context.service.desired != context.canary_at(percent):
        if not context.canary_ready:
            return _add_blind_time(context, "the canary is no longer ready")
        return request_change(context, context.canary_at(percent), "step", f"the canary is given {percent} %")
    state = context.state
    why = _traffic_problem(context, percent) or credibility_problem(
        context.window, percent, state.cursor, state.requests
    )
    if why or context.window is None:
        return _add_blind_time(context, why)
    return _decide_on_evidence(context._replace(state=fold_window(context.state, context.window)))


def _traffic_problem(context: DecisionContext, percent: int) -> str:
    """Explain why the canary does not serve the requested share; "" if it does."""
    if not context.canary_ready:
        return "the canary is not ready: the stable model answers for it"
    assert context.state.stable is not None, "known since Verify"
    canary, stable = (
        context.service.traffic.get(uri, 0) for uri in (context.spec.release.uri, context.state.stable.uri)
    )
    if (canary, stable) != (percent, 100 - percent):
        return f"the traffic is {canary} % canary and {stable} % stable, not {percent} and {100 - percent} %"
    return ""


def _decide_on_evidence(context: DecisionContext) -> Decision:
    worse = harmful_checks(context.state)
    if worse:
        return start_rollback(context, "RolledBack", worse)
    if context.spec.paused or missing_evidence(context.state, context.spec):
        return Decision(context.state)
    percent, step = context.spec.steps[context.state.step], context.state.step + 1
    context = context.with_record("pass", f"{percent} % is earned: every check is passed", with_figures=True)
    if context.spec.steps[step] == 100:
        return _promote(context.with_state(phase="Promote", blind=0.0))
    return _analyse(context._replace(state=enter_step(context.state, context.spec, step)))


def _promote(context: DecisionContext) -> Decision:
    whole = context.canary_at(None)
    if context.service.desired != whole:
        if not context.canary_ready:
            return _add_blind_time(context, "the canary is no longer ready")
        # The write fails if the object has changed since it was read, so that nothing newer is promoted.
        return request_change(context, whole, "promote", "the canary is given all of the traffic")
    if context.serves_everybody:
        return end_rollout(context, "Promoted", ())
    return _add_blind_time(context, "the promotion is not carried out")


def _add_blind_time(context: DecisionContext, why: str) -> Decision:
    """Add time without credible evidence. After 15 s it is recorded; after 240 s the canary is rolled back."""
    blind = context.state.blind + context.elapsed
    if context.state.blind < BLIND_NOTED_SECONDS <= blind:
        context = context.with_record("blind", why)
    context = context.with_state(blind=blind)
    if blind >= BLIND_SECONDS:
        return start_rollback(context, "RolledBack", (f"{why}, for {blind:,.0f} s",))
    return Decision(context.state)


PHASE_RULES: dict[Phase, Callable[[DecisionContext], Decision]] = {
    "Apply": _apply,
    "WaitReady": _wait_ready,
    "Analyse": _analyse,
    "Promote": _promote,
}
