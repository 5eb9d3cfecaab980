"""The decision for each kind of observation."""

from typing import Any

import pytest

from serving.rollout.canary_analysis import credibility_problem, enter_step
from serving.rollout.decide import BLIND_SECONDS, decide
from serving.rollout.decision_context import Decision, DecisionContext
from serving.rollout.ports import Proof, Revision, ServiceSnapshot, Window
from serving.rollout.rollback import CUT_SECONDS
from serving.rollout.sequential import Count
from serving.rollout.spec import RolloutSpec, default_checks
from serving.rollout.state import DesiredModel, Intent, StableRelease, State
from serving.rollout.timeline import timeline

OLD, NEW = "s3://releases/old", "s3://releases/new"
NOW = 1_790_000_000.0
STABLE = Revision("rev-1", OLD, True)
CANARY = Revision("rev-2", NEW, True)
PROOFS = Proof("d2", "m2", ()), Proof("d1", "m1", ())
CHECKS = ("errors", "slow", "fallbacks", "zero_hits", "costly")


def spec(**changes: Any) -> RolloutSpec:
    """The default policy where a shadow runs."""
    release = {"name": "demo/rewriter", "digest": "d2", "uri": NEW, "model": "m2"}
    checks = [check.model_dump(by_alias=True) for check in default_checks(shadowed=True)]
    return RolloutSpec.parse(
        {"inferenceService": "rewriter", "release": release, "checks": checks} | changes, "a test"
    )


def served(uri: str = NEW, percent: int | None = 5, **changes: Any) -> ServiceSnapshot:
    share = 100 if percent is None else percent
    traffic = {NEW: share, OLD: 100 - share} if uri == NEW else {OLD: 100}
    newest = CANARY if uri == NEW else STABLE
    requested = DesiredModel(uri=uri, percent=percent)
    result = ServiceSnapshot(
        "7", 3, True, requested, "rest", newest, STABLE, traffic, "Serverless", editor="kubectl-edit"
    )
    return result._replace(**changes)


def state(phase: str = "Analyse", **changes: Any) -> State:
    begun = State(
        stable=StableRelease(uri=OLD, digest="d1", model="m1"),
        desired=DesiredModel(uri=NEW, percent=5),
        rest="rest",
        generation=3,
    )
    begun = enter_step(begun, spec(), 0)
    return begun.model_copy(update={"phase": phase, "last_reconciled": NOW - 30, "cursor": 1000.0} | changes)


def window(canary: float = 100, failed: float = 0, stable: float = 1900, until: float = 1030) -> Window:
    local = {name: Count(canary, failed if name == "errors" else 0) for name in CHECKS}
    other = {name: Count(stable, 0) for name in CHECKS}
    return Window(until, local | {"quality": Count(20, 10)}, other)


def decided(
    had: State, observed: ServiceSnapshot, *, measured: Window | None = None, proofs: Any = None, **expected: Any
) -> Decision:
    return decide(DecisionContext(spec(**expected), had, observed, measured, proofs, NOW))


@pytest.mark.parametrize(
    ("observed", "proofs", "message"),
    [
        (
            served(OLD, None),
            (Proof("d2", "m2", ("no journal of the teacher",)), PROOFS[1]),
            "no journal of the teacher",
        ),
        (served(OLD, None), (PROOFS[0], Proof("d1", "m1", ("no signature",))), "to which a rollback would go"),
        (served(OLD, None), (Proof("d3", "m2", ()), PROOFS[1]), "is release d3, not d2"),
        (served(OLD, None), (Proof("d2", "m3", ()), PROOFS[1]), "its model is m3"),
        (served(OLD, None), (Proof("d2", "m2", ()), Proof("d1", "m2", ())), "served already"),
        (served(NEW, 10), PROOFS, "under way already"),
        (served(OLD, None, rolled_out=None), PROOFS, "nothing is served: wait"),
        (served(OLD, None, rolled_out=CANARY), PROOFS, "wait until they agree"),
        (served(OLD, None, rolled_out=Revision("rev-0", "", False)), PROOFS, "a revision that is gone is served"),
        (served(OLD, None, unsupported="KServe 0.20 sends a Standard canary no traffic"), PROOFS, "no traffic"),
        (served(OLD, None, mode="Standard"), PROOFS, "asks for Serverless"),
    ],
)
def test_a_rollout_that_cannot_be_trusted_is_refused_and_nothing_is_changed(
    observed: ServiceSnapshot, proofs: tuple[Proof, Proof], message: str
) -> None:
    result = decided(State(), observed, proofs=proofs, mode="Serverless")

    assert result.desired is None and result.state.outcome == "Refused"
    assert any(message in reason for reason in result.state.reasons), result.state.reasons


def test_a_policy_beyond_the_limits_is_refused_and_nothing_is_changed() -> None:
    result = decided(State(), served(OLD, None), proofs=PROOFS, steps=[99, 100], stepSeconds=1)

    assert result.desired is None and result.state.outcome == "Refused"
    assert len(result.state.reasons) == 2 and "99 %, and 50 is the most" in result.state.reasons[0]


def test_the_canary_is_first_asked_for_without_users() -> None:
    verified = decided(State(), served(OLD, None), proofs=PROOFS)
    assert verified.state.phase == "Apply" and verified.desired is None

    result = decided(verified.state, served(OLD, None))

    assert result.desired == DesiredModel(uri=NEW, percent=0)
    assert result.state.intent == Intent(
        action="apply", uri=NEW, percent=0, expected_resource_version="7", at="2026-09-21T14:13:20+00:00"
    )


def test_an_unready_canary_gets_no_users() -> None:
    waiting = state("WaitReady", desired=DesiredModel(uri=NEW, percent=0))

    result = decided(waiting, served(NEW, 0, newest=CANARY._replace(ready=False)))

    assert result.desired is None and result.state.phase == "WaitReady"


def test_a_canary_whose_pods_die_is_taken_back() -> None:
    waiting = state("WaitReady", desired=DesiredModel(uri=NEW, percent=0), blind=BLIND_SECONDS - 30)
    dying = CANARY._replace(ready=False, failed="CrashLoopBackOff")

    result = decided(waiting, served(NEW, 0, newest=dying))

    assert result.desired == DesiredModel(uri=OLD, percent=0) and "CrashLoopBackOff" in result.state.reasons[0]


@pytest.mark.parametrize(
    ("observed", "measured", "message"),
    [
        (served(newest=CANARY._replace(ready=False)), window(), "the stable model answers for it"),
        (served(traffic={OLD: 100}), window(), "the traffic is 0 % canary"),
        (served(settled=False), window(), "not ready"),
        (served(), None, "no measurements"),
        (served(), window(until=1000), "stand still"),
        (served(), window(canary=float("nan")), "contradict themselves"),
        (served(), window(canary=10, failed=11), "contradict themselves"),
        (served(), window(canary=-10), "contradict themselves"),
        (served(), window(canary=0), "under the canary model's version"),
        (served(), window(stable=0), "under the stable model's version"),
        (served(), window(canary=10, stable=2000), "answered 0.5 % of 2,010 requests"),
        (served(), window(canary=40, stable=1960), "the stable model answers for it"),
        (served(), window(canary=1980, stable=20), "answered 99.0 %"),
        (served(), window(canary=200, stable=1900), "somebody asks it by another way"),
        (served(), window(canary=1200, stable=800), "answered 60.0 %"),
    ],
)
def test_a_window_without_data_of_the_canary_is_no_success(
    observed: ServiceSnapshot, measured: Window | None, message: str
) -> None:
    once = decided(state(), observed, measured=measured)
    assert once.desired is None and once.state.evidence == state().evidence
    assert message in once.state.history[-1].why

    for_long = decided(state(blind=BLIND_SECONDS - 30), observed, measured=measured)

    assert for_long.state.phase == "Rollback" and for_long.desired == DesiredModel(uri=OLD, percent=0)


@pytest.mark.parametrize(
    ("percent", "canary", "stable"),
    [(5, 100, 1900), (5, 70, 1930), (5, 140, 1860), (5, 3, 20), (50, 1, 9), (50, 1100, 900)],
)
def test_a_share_that_chance_explains_is_evidence(percent: int, canary: float, stable: float) -> None:
    """Small counts may be far off, and a few per cent more or less come of counters that are read apart."""
    assert credibility_problem(window(canary=canary, stable=stable), percent, 1000.0) == ""


@pytest.mark.parametrize(
    ("percent", "canary", "stable"), [(50, 2000, 1), (50, 700, 1300), (50, 1300, 700), (5, 20, 30), (20, 30, 1970)]
)
def test_a_share_that_chance_does_not_explain_is_no_evidence(percent: int, canary: float, stable: float) -> None:
    problem = credibility_problem(window(canary=canary, stable=stable), percent, 1000.0)

    assert f"asked for {percent} % and answered {100 * canary / (canary + stable):.1f} %" in problem


def test_a_canary_with_easy_requests_beside_its_share_does_not_pass() -> None:
    """20 % of its users' requests fail, and in each block 20 good ones go straight to its own route."""
    had, until = state(), 1000.0
    for _ in range(40):
        until += 30
        measured = window(canary=20 + 20, failed=4, stable=380, until=until)
        result = decided(had, served(), measured=measured)
        had = result.state.model_copy(update={"last_reconciled": NOW - 30})
        if had.phase != "Analyse" or had.step:
            break

    assert (had.phase, had.step) == ("Rollback", 0), had.reasons


def test_requests_of_many_blocks_are_judged_together() -> None:
    """Each block alone could be chance: 12 of 100 for 5 %."""
    had, credible = state(), 0
    for block in range(1, 20):
        result = decided(had, served(), measured=window(canary=12, stable=88, until=1000 + 30 * block))
        credible += result.state.evidence != had.evidence
        had = result.state.model_copy(update={"last_reconciled": NOW - 30})

    assert 0 < credible < 10
    assert had.phase == "Rollback" and "answered 12.0 % of" in had.reasons[0]


def test_harm_is_taken_back_on_the_numbers_that_showed_it() -> None:
    had = state()
    for poll in range(1, 4):
        result = decided(had, served(), measured=window(failed=30, until=1000 + 30 * poll))
        had = result.state.model_copy(update={"last_reconciled": NOW - 30})

    assert result.desired == DesiredModel(uri=OLD, percent=0) and result.state.phase == "Rollback"
    assert result.state.reasons[0].startswith("errors ") and "worse" in result.state.reasons[0]
    assert any("errors" in line and "canary 60/200" in line for line in timeline(result.state))


def passing(percent: int = 5, **changes: Any) -> State:
    """A step that has everything but its last look."""
    had = state(
        desired=DesiredModel(uri=NEW, percent=percent), step=(5, 20, 50, 100).index(percent), step_seconds=280.0
    )
    scores = tuple(
        score.model_copy(update={"safe": 5000.0, "until": 1000.0, "guess": Count(9e4, 90), "canary": Count(900, 1)})
        for score in had.evidence
    )
    return had.model_copy(update={"evidence": scores} | changes)


def test_a_step_that_is_passed_earns_the_next_share_and_the_last_one_all() -> None:
    assert decided(passing(), served(), measured=window()).desired == DesiredModel(uri=NEW, percent=20)

    half = window(canary=1000, stable=1000)
    assert decided(passing(50), served(NEW, 50), measured=half).desired == DesiredModel(uri=NEW, percent=None)


@pytest.mark.parametrize(
    ("had", "message"),
    [
        (passing(step_seconds=10.0), "seconds"),
        (passing(evidence=tuple(s.model_copy(update={"canary": Count(5, 0)}) for s in passing().evidence)), "sample"),
        (
            passing(evidence=tuple(s.model_copy(update={"safe": 900.0, "safe_looks": 9}) for s in state().evidence)),
            "bet",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_step_that_lacks_anything_is_not_passed(had: State, message: str) -> None:
    result = decided(had, served(), measured=window())

    assert result.desired is None and result.state.step == 0 and result.state.phase == "Analyse"


def test_a_check_that_went_silent_is_not_passed() -> None:
    silent = window()._replace(until=1300.0)
    del silent.canary["zero_hits"]  # type: ignore[attr-defined]

    result = decided(passing(), served(), measured=silent)

    assert result.desired is None and result.state.step == 0


def test_a_promotion_earned_before_the_deadline_is_kept() -> None:
    promoting = state("Promote", intent=None, desired=DesiredModel(uri=NEW, percent=None), watched=10_000.0)

    assert decided(promoting, served(NEW, None)).state.phase == "Promote"
    assert decided(promoting, served(NEW, None, rolled_out=CANARY)).state.outcome == "Promoted"
    dead = promoting.model_copy(update={"blind": BLIND_SECONDS})
    assert decided(dead, served(NEW, None)).state.phase == "Rollback", "a promotion that is never carried out is"


def test_the_way_back_clears_the_share_only_when_the_restored_pods_are_ready() -> None:
    back = state("Rollback", ending="RolledBack", reasons=("bad",))
    new_pods = Revision("rev-3", OLD, False)

    first = decided(back, served(NEW, 20))
    assert first.desired == DesiredModel(uri=OLD, percent=0)
    waiting = decided(first.state, served(OLD, 0, newest=new_pods))
    assert waiting.desired is None
    last = decided(waiting.state, served(OLD, 0, newest=new_pods._replace(ready=True)))
    assert last.desired == DesiredModel(uri=OLD, percent=None)
    done = decided(last.state, served(OLD, None))
    assert done.state.outcome == "RolledBack" and done.state.reasons == ("bad",)


def test_the_way_back_waits_until_kserve_has_made_the_canary_and_old_pods_are_not_the_restored_ones() -> None:
    back = state("Rollback", ending="Aborted", desired=DesiredModel(uri=NEW, percent=0))

    waiting = decided(back, served(NEW, 0, newest=STABLE))
    assert waiting.desired is None and waiting.state.blind == 30
    assert decided(back, served(NEW, 0)).desired == DesiredModel(uri=OLD, percent=0), "it was made"
    late = back.model_copy(update={"blind": CUT_SECONDS})
    assert decided(late, served(NEW, 0, newest=STABLE)).desired == DesiredModel(uri=OLD, percent=0), (
        "KServe makes nothing"
    )


def test_a_rolled_out_canary_loses_its_users_before_the_stable_model_is_asked_for() -> None:
    back = state("Rollback", ending="RolledBack")

    result = decided(back, served(NEW, None, rolled_out=CANARY))

    assert result.desired == DesiredModel(uri=NEW, percent=0)


def test_a_standard_canary_is_removed_in_one_write() -> None:
    result = decided(state("Rollback", ending="RolledBack"), served(mode="Standard"))

    assert result.desired == DesiredModel(uri=OLD, percent=None)


def test_a_foreign_edit_is_named_and_stopped() -> None:
    result = decided(state(), served(NEW, 80, generation=4), measured=window())

    assert result.state.phase == "Rollback"
    assert result.state.reasons == ("kubectl-edit changed what is served: s3://releases/new at 80 %",)


def test_a_foreign_edit_is_put_right_a_few_times_and_waits_for_pods_again() -> None:
    observed = served("s3://other", 5, generation=4, newest=Revision("rev-3", "s3://other", True))

    result = decided(state(), observed, foreignEdits="Restore")
    assert result.desired == DesiredModel(uri=NEW, percent=0) and result.state.phase == "Apply"

    assert decided(state(restored=3), observed, foreignEdits="Restore").state.phase == "Rollback"


@pytest.mark.parametrize("observed", [served(OLD, None, generation=4), served(rest="other", generation=4)])
def test_a_persons_way_back_and_other_pods_are_never_undone(observed: ServiceSnapshot) -> None:
    assert decided(state(), observed, foreignEdits="Restore").state.ending == "RolledBack"


def test_a_stale_read_decides_nothing() -> None:
    had = state(generation=9)

    assert decided(had, served(NEW, 80), measured=window()) == Decision(had)


def test_a_lost_reply_is_resolved_by_reading() -> None:
    intent = Intent(action="step", uri=NEW, percent=20, expected_resource_version="6", at="then")
    had = state(intent=intent, step=1)

    landed = decided(had, served(NEW, 20, generation=4), measured=window())
    assert landed.desired is None and landed.state.desired == intent.desired and landed.state.intent is None

    not_landed = decided(had, served(), measured=window())
    assert not_landed.desired == intent.desired


def test_no_rollout_ends_while_a_write_of_its_own_may_still_arrive() -> None:
    intent = Intent(action="apply", uri=NEW, percent=0, expected_resource_version="7", at="then")
    had = state("Apply", desired=DesiredModel(uri=OLD), intent=intent)

    waiting = decided(had, served(OLD, None), abort=True)
    assert waiting.state.phase == "Rollback" and waiting.desired is None

    late = waiting.state.model_copy(update={"blind": 90.0})
    assert decided(late, served(OLD, None), abort=True).state.outcome == "Aborted"
    moved = served(OLD, None, resource_version="8")
    assert decided(waiting.state, moved, abort=True).state.outcome == "Aborted"


@pytest.mark.parametrize("phase", ["Apply", "WaitReady", "Analyse"])
def test_the_deadline_ends_in_the_way_back(phase: str) -> None:
    result = decided(state(phase, watched=7190.0), served())

    assert result.state.phase == "Rollback" and "undecided" in result.state.reasons[0]


def test_a_clock_that_leaps_spends_no_deadline() -> None:
    result = decided(state(last_reconciled=NOW - 90_000), served(), measured=window())

    assert result.state.phase == "Analyse" and result.state.watched <= 120


def test_a_person_pauses_aborts_and_promotes() -> None:
    held = decided(passing(), served(), measured=window(), paused=True)
    assert held.desired is None and held.state.watched == 0

    aborted = decided(state(), served(), measured=window(), abort=True)
    assert aborted.desired == DesiredModel(uri=OLD, percent=0) and aborted.state.ending == "Aborted"

    promoted = decided(state(), served(), measured=window(), promote=True)
    assert promoted.desired == DesiredModel(uri=NEW, percent=None)
    assert any(line.endswith("by a person's word") for line in timeline(promoted.state))


def test_a_paused_canary_that_does_harm_is_taken_back_all_the_same() -> None:
    scores = tuple(score.model_copy(update={"harm": (5e3, 5e3, 5e3)}) for score in state().evidence)

    result = decided(state(evidence=scores), served(), measured=window(), paused=True)

    assert result.desired == DesiredModel(uri=OLD, percent=0)


def test_a_dark_step_judges_shadow_pairs_alone() -> None:
    dark = state(desired=DesiredModel(uri=NEW, percent=0))
    nobody = Window(1030.0, {"errors": Count(0, 0), "quality": Count(40, 20)}, {"errors": Count(2000, 3)})

    result = decided(dark, served(NEW, 0, traffic={OLD: 100}), measured=nobody, steps=[0, 5, 100])

    assert not result.state.blind
    assert [score.check for score in result.state.evidence if score.canary.total] == ["quality"]
