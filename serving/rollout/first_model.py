"""The first model of an InferenceService, which can be compared with nothing and has nothing to go back to.

KServe gives a first model all of the traffic, whatever share is asked for. So the release is proven and asked for,
the controller waits until its pods serve, and the outcome says that nothing was compared.
"""

from serving.rollout.decision_context import Decision, DecisionContext, describe_edit, end_rollout, request_change
from serving.rollout.ports import Proof
from serving.rollout.preconditions import verification_failures

UNCOMPARED = "the first model of this InferenceService: nothing was compared"

LEFT = (
    "nothing was served before, and nothing is now; the InferenceService goes on asking for it, and serves it as "
    "soon as its pods come: delete the InferenceService where that must not be"
)


def begin(context: DecisionContext, proof: Proof) -> Decision:
    """Begin where the release is proven and the rollout says how to serve it; refuse otherwise."""
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
    """Ask for the model once, then wait until it serves."""
    if context.spec.abort:
        why = "aborted by a person; what was made stays, since there is nothing to go back to"
        return end_rollout(context, "Aborted", (why,))
    if context.service.desired == context.canary_at(None):
        return _check_serving(context)
    if context.state.percent:
        return end_rollout(context, "Refused", (describe_edit(context), "nothing is there to go back to"))
    if changed := _change_since_verified(context):
        return Decision(context.with_record("verify again", changed).with_state(phase="Verify", intent=None).state)
    return request_change(context, context.canary_at(None), "first", UNCOMPARED)


def _change_since_verified(context: DecisionContext) -> str:
    """Why the release must be verified again: the service was edited, or another model serves by now. Else "".

    In Serverless mode this holds for the write that follows: it is taken at the version that was read here alone.
    """
    if context.service.desired != context.state.desired:
        return describe_edit(context)
    serving = context.service.rolled_out
    return f"{serving.uri or serving.name} serves by now" if serving else ""


def _check_serving(context: DecisionContext) -> Decision:
    service, uri = context.service, context.spec.release.uri
    rolled_out = service.rolled_out is not None and service.rolled_out.uri == uri
    if context.canary_ready and rolled_out and service.traffic.get(uri) == 100:
        return end_rollout(context, "Promoted", (UNCOMPARED,))
    failed = service.newest.failed if service.newest else ""
    if context.state.watched >= context.spec.deadline_seconds:
        why = f"its pods did not come to serve within {context.state.watched:,.0f} s{failed and f': {failed}'}"
        return end_rollout(context, "Refused", (why, LEFT))
    return Decision(context.with_record("blind", f"its pods fail: {failed}").state if failed else context.state)
