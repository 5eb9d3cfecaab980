"""The first model of an InferenceService: nothing is there to compare it with, and nothing to go back to.

KServe gives a first model all of the traffic, whatever share it is asked for at. So it is proven, asked for, and
waited for until its pods serve, and the outcome says that nothing was compared.
"""

from serving.rollout.decision_context import Decision, DecisionContext, describe_edit, end_rollout, request_change
from serving.rollout.ports import Proof
from serving.rollout.preconditions import verification_failures

UNCOMPARED = "the first model of this InferenceService: nothing was compared"

LEFT = (
    "nothing was served before, and nothing is now; the InferenceService goes on asking for it, and serves it as "
    "soon as its pods come: delete the InferenceService where that must not be"
)


def begin(turn: DecisionContext, proof: Proof) -> Decision:
    """Where the release is proven, and is known how to be served."""
    served, release = turn.served, turn.spec.release
    reasons = verification_failures(turn.spec, proof)
    if not served.uid and turn.spec.predictor is None:
        reasons.append(
            f"there is no InferenceService {turn.spec.inference_service}, and spec.predictor does not say what to "
            "make one of"
        )
    if reasons:
        return end_rollout(turn, "Refused", tuple(reasons))
    turn = turn.noted("verify", f"release {release.digest[:12]} is proven; nothing is served yet")
    return Decision(turn.but(phase="Promote", watched=0.0, asked=served.asked, rest=served.rest).state)


def advance(turn: DecisionContext) -> Decision:
    """Asked for once, and then waited for."""
    if turn.spec.abort:
        why = "aborted by a person; what was made stays, since there is nothing to go back to"
        return end_rollout(turn, "Aborted", (why,))
    if turn.served.asked == turn.canary(None):
        return _check_serving(turn)
    if turn.state.percent:
        return end_rollout(turn, "Refused", (describe_edit(turn), "nothing is there to go back to"))
    if turn.served.asked != turn.state.asked:
        return Decision(turn.noted("verify again", describe_edit(turn)).but(phase="Verify", intent=None).state)
    return request_change(turn, turn.canary(None), "first", UNCOMPARED)


def _check_serving(turn: DecisionContext) -> Decision:
    served, uri = turn.served, turn.spec.release.uri
    rolled_out = served.rolled_out is not None and served.rolled_out.uri == uri
    if turn.canary_ready and rolled_out and served.traffic.get(uri) == 100:
        return end_rollout(turn, "Promoted", (UNCOMPARED,))
    failed = served.newest.failed if served.newest else ""
    if turn.state.watched >= turn.spec.deadline_seconds:
        why = f"its pods did not come to serve within {turn.state.watched:,.0f} s{failed and f': {failed}'}"
        return end_rollout(turn, "Refused", (why, LEFT))
    return Decision(turn.noted("blind", f"its pods fail: {failed}").state if failed else turn.state)
