"""The first model of an InferenceService: proven, asked for, waited for, and never called better."""

from typing import Any

from serving.rollout.decide import decide
from serving.rollout.decision_context import Decision, DecisionContext
from serving.rollout.ports import Proof, Revision, ServiceSnapshot
from serving.rollout.spec import RolloutSpec
from serving.rollout.state import DesiredModel, State

NEW, OTHER = "s3://releases/new", "s3://releases/other"
PROOF = Proof("d2", "m2", ())
NOTHING = ServiceSnapshot("", 0, True, DesiredModel(uri=""), "", None, None, {}, "Serverless")
WHOLE = DesiredModel(uri=NEW)
CREATED = NOTHING._replace(resource_version="5", generation=1, desired=WHOLE, rest="rest", uid="u-1")
PODS = Revision("rev-1", NEW, True)
SERVING = CREATED._replace(newest=PODS, rolled_out=PODS, traffic={NEW: 100})


def spec(**changes: Any) -> RolloutSpec:
    release = {"name": "demo/rewriter", "digest": "d2", "uri": NEW, "model": "m2"}
    predictor = {"runtime": "one", "format": "one"}
    requested = {"inferenceService": "rewriter", "release": release, "predictor": predictor, "deadlineSeconds": 900}
    return RolloutSpec.parse(requested | changes, "a test")


def decided(
    had: State, observed: ServiceSnapshot, proof: Proof | None = None, later: float = 0.0, **expected: Any
) -> Decision:
    proofs = (proof, None) if proof else None
    return decide(DecisionContext(spec(**expected), had, observed, None, proofs, 1_790_000_000.0 + later))


def begun() -> State:
    verified = decided(State(), NOTHING, PROOF)
    assert verified.desired is None and verified.state.phase == "Promote"
    return verified.state


def requested() -> State:
    result = decided(begun(), NOTHING)
    assert result.desired == WHOLE and result.state.intent and result.state.intent.expected_resource_version == ""
    return result.state


def test_a_first_model_gets_everything_and_is_said_to_be_uncompared() -> None:
    waiting = decided(requested(), CREATED)
    assert waiting.desired is None and waiting.state.phase == "Promote" and waiting.state.percent == 100

    result = decided(waiting.state, SERVING)

    assert result.state.outcome == "Promoted" and "nothing was compared" in result.state.reasons[0]


def test_a_lost_reply_is_asked_again_and_one_that_arrived_is_not() -> None:
    assert decided(requested(), NOTHING).desired == WHOLE
    assert decided(requested(), CREATED).desired is None


def test_an_unproven_release_or_an_unknown_way_to_serve_makes_no_service() -> None:
    unsigned = decided(State(), NOTHING, Proof("d2", "m2", ("no signature",)))
    unknown = decided(State(), NOTHING, PROOF, predictor=None)

    assert unsigned.state.outcome == unknown.state.outcome == "Refused"
    assert "no signature" in unsigned.state.reasons[0] and "spec.predictor" in unknown.state.reasons[0]
    assert unsigned.desired is None and unknown.desired is None


def test_pods_that_never_come_end_it_by_the_deadline_with_their_reason() -> None:
    dying = CREATED._replace(newest=Revision("rev-1", NEW, False, "CrashLoopBackOff"))
    state = decided(requested(), dying).state
    for poll in range(1, 10):
        assert state.phase == "Promote"
        state = decided(state, dying, later=100.0 * poll).state

    assert state.outcome == "Refused" and "CrashLoopBackOff" in state.reasons[0]


def test_a_service_that_never_served_gets_a_new_first_model() -> None:
    broken = CREATED._replace(desired=DesiredModel(uri=OTHER), newest=Revision("rev-1", OTHER, False))
    verified = decided(State(), broken, PROOF)

    assert decided(verified.state, broken).desired == WHOLE


def test_a_model_that_serves_before_the_first_is_asked_for_is_compared() -> None:
    """By a late copy nothing served; the write that it led to was refused, or has yet to be sent."""
    other = Revision("rev-1", OTHER, True)
    starting = CREATED._replace(desired=DesiredModel(uri=OTHER), newest=other._replace(ready=False))
    serving = starting._replace(resource_version="6", newest=other, rolled_out=other, traffic={OTHER: 100})
    verified = decided(State(), starting, PROOF).state
    refused = decided(verified, starting)
    assert refused.desired == WHOLE

    for state in (verified, refused.state):
        again = decided(state, serving)

        assert again.desired is None and (again.state.phase, again.state.intent) == ("Verify", None)
        assert f"{OTHER} serves by now" in again.state.history[-1].why

    proofs = (PROOF, Proof("d1", "m1", ()))
    compared = decide(DecisionContext(spec(), again.state, serving, None, proofs, 1_790_000_000.0))
    assert compared.state.phase == "Apply" and compared.state.stable and compared.state.stable.uri == OTHER


def test_a_model_set_by_another_editor_is_checked_before_and_named_after_our_own() -> None:
    rest = CREATED._replace(desired=DesiredModel(uri=OTHER), editor="kubectl-create")
    faster = decided(requested(), rest)
    assert faster.desired is None and faster.state.phase == "Verify"

    own_part = decided(requested(), CREATED).state
    later = decided(own_part, rest._replace(generation=2))
    assert later.state.outcome == "Refused" and "kubectl-create" in later.state.reasons[0]


def test_an_abort_ends_it_and_says_that_what_was_made_stays() -> None:
    own_part = decided(requested(), CREATED).state

    result = decided(own_part, CREATED, abort=True)

    assert result.desired is None and result.state.outcome == "Aborted" and "stays" in result.state.reasons[0]


def test_a_service_that_is_deleted_or_made_anew_ends_the_rollout() -> None:
    own_part = decided(requested(), CREATED).state

    for observed in (NOTHING, CREATED._replace(uid="u-2", generation=9)):
        result = decided(own_part, observed)
        assert result.desired is None and result.state.outcome == "Aborted" and "is gone" in result.state.reasons[0]
