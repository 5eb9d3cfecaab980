"""Roll out the first model of an InferenceService, for which there is no comparison and no rollback.

KServe gives a first model all of the traffic, at any requested share. So the controller verifies and requests the
release, and waits until its pods serve. The outcome says that nothing was compared.
"""

from serving.rollout.decision_context import (
    Decision,
    DecisionContext,
    describe_edit,
    end_rollout,
    request_change,
    verification_failures,
)
from serving.rollout.ports import Proof

UNCOMPARED = "the first model of this InferenceService: nothing was compared"

LEFT = (
    "nothing was served before, and nothing is now; the InferenceService goes on asking for it, and serves it as "
    "soon as its pods come: delete the InferenceService where that must not be"
)


def begin(context: DecisionContext, proof: Proof) -> Decision:
    """Begin the rollout. It ends as Refused if the release is not proven or `spec.predictor` is missing."""
    service, release = context.service, context.spec.release
    reasons = verification_failures(context.spec, proof)
    if not service.uid and context.spec.predictor is None:
        reasons.append(
            f"there is no InferenceService {context.spec.inference_service}, and spec.predictor does not say what to "
            "make one of"
        )
    if reasons:
        return end_rollout(context, "Refused", tuple(reasons))
    context = context.with_record("verify", f"release {release.digest[:12]} is proven; nothing is served yet")
    return Decision(
        context.with_state(phase="Promote", watched=0.0, desired=service.desired, rest=service.rest).state
    )


def advance(context: DecisionContext) -> Decision:
    """Request the model once, then wait until it serves."""
    if context.spec.abort:
        why = "aborted by a person; what was made stays, since there is nothing to go back to"
        return end_rollout(context, "Aborted", (why,))
    if context.service.desired == context.canary_at(None):
        return _check_serving(context)
    if context.state.percent:
        return end_rollout(context, "Refused", (describe_edit(context), "nothing is there to go back to"))
    # In Serverless mode these checks still hold at the write that follows, because it is accepted only if the
    # InferenceService has not changed since it was read.
    serving, changed = context.service.rolled_out, ""
    if context.service.desired != context.state.desired:
        changed = describe_edit(context)
    elif serving:
        changed = f"{serving.uri or serving.name} serves by now"
    if changed:
        return Decision(context.with_record("verify again", changed).with_state(phase="Verify", intent=None).state)
    return request_change(context, context.canary_at(None), "first", UNCOMPARED)


def _check_serving(context: DecisionContext) -> Decision:
    if context.serves_everybody:
        return end_rollout(context, "Promoted", (UNCOMPARED,))
    failed = context.service.newest.failed if context.service.newest else ""
    if context.state.watched >= context.spec.deadline_seconds:
        why = f"its pods did not come to serve within {context.state.watched:,.0f} s{failed and f': {failed}'}"
        return end_rollout(context, "Refused", (why, LEFT))
    return Decision(context.with_record("blind", f"its pods fail: {failed}").state if failed else context.state)
