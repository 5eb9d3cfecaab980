"""A rollout's lines for people: decisions once, progress in between, and reasons that match their numbers."""

import pytest

from qinglan.terminal import say
from serving.rollout.canary_analysis import enter_step, fold_window, harmful_checks
from serving.rollout.ports import Window
from serving.rollout.sequential import Count
from serving.rollout.spec import Check, Release, RolloutSpec
from serving.rollout.state import CheckFigures, DecisionRecord, State
from serving.rollout.timeline import PROGRESS_SECONDS, TimelineFollower, decision_lines

SPEC = RolloutSpec(
    inference_service="rewriter",
    release=Release(name="demo/rewriter", digest="d2", uri="s3://releases/new", model="m2"),
    checks=(Check(name="errors", margin=0.01),),
)


def measured(state: State, *windows: tuple[float, float, float, float]) -> State:
    """After windows of 30 s: requests and failures of the canary, then of the stable model."""
    for canary, failed, stable, stable_failed in windows:
        until = (state.cursor or state.evidence[0].until or 970.0) + 30
        counts = {"errors": Count(canary, failed)}, {"errors": Count(stable, stable_failed)}
        state = fold_window(state, Window(until, *counts))
    return state


ANALYSED = measured(enter_step(State(phase="Analyse"), SPEC, 0), *[(50, 1, 950, 10)] * 3)


@pytest.mark.slow
def test_every_decision_is_printed_once_also_where_the_beginning_of_the_history_is_forgotten() -> None:
    follower, state, lines = TimelineFollower(), State(), list[str]()
    for number in range(250):
        state = state.with_record(1.79e9 + number, f"look {number}", "why")
        if number % 3 == 0:
            lines += follower.lines(state, SPEC)
            assert follower.lines(state, SPEC) == []

    assert [" ".join(line.split()[2:4]) for line in lines] == [f"look {number}" for number in range(250)]


def test_a_rollout_that_waits_says_what_for_at_most_every_30_s_and_where_it_changed() -> None:
    now = [0.0]
    follower = TimelineFollower(clock=lambda: now[0])
    assert follower.lines(ANALYSED, SPEC) == [], "it has just begun"

    now[0] = PROGRESS_SECONDS
    [line] = follower.lines(ANALYSED, SPEC)
    assert line.startswith("5 % waits for: measured for 60 s of 300; 100 requests of 200; errors ")

    more = measured(ANALYSED, (50, 1, 950, 10))
    assert follower.lines(more, SPEC) == [], "30 s have not passed"
    now[0] += PROGRESS_SECONDS
    assert follower.lines(ANALYSED, SPEC) == [], "nothing has changed"
    assert len(follower.lines(more, SPEC)) == 1


def test_a_reason_shows_the_counts_that_the_decision_was_made_on() -> None:
    """Harm was suspected in the step before, and a storm over the stable model's larger part makes this step's sums
    read in the canary's favour: the reason must not show those sums beside the word "worse"."""
    suspected = measured(
        enter_step(State(phase="Analyse"), SPEC, 0), *[(50, 1, 950, 10)] * 5, (50, 5, 950, 9), (50, 2, 950, 9)
    )
    assert not harmful_checks(suspected)

    back = measured(enter_step(suspected, SPEC, 1), (0, 0, 0, 0), (2, 0, 198, 60), (100, 9, 400, 4))

    [score] = back.evidence
    assert score.canary.failed / score.canary.total < score.stable.failed / score.stable.total
    [reason] = harmful_checks(back)
    assert reason.startswith("errors 18 of 302 (5.96 %) in 210 s, 3.6 (1.19 %) expected at the stable model's rates")


@pytest.mark.usefixtures("in_chinese")
def test_a_decision_is_told_in_the_language_of_the_person_who_looks(capsys: pytest.CaptureFixture[str]) -> None:
    check = CheckFigures(
        check="zero_hits",
        canary=Count(47, 0),
        stable=Count(90, 8),
        margin=0.2,
        harm=0.103,
        safe=300.0,
    )
    record = DecisionRecord(
        at="2026-11-27T07:58:24+00:00",
        phase="Analyse",
        action="pass",
        why="20 % is earned: every check is passed",
        figures=(check,),
    )

    say(*decision_lines(record))

    assert capsys.readouterr().out.splitlines() == [
        "2026-11-27T07:58:24+00:00  Analyse    pass         已赢得 20% 的流量：每项检查都通过",
        f"{'':<38}zero_hits  金丝雀 0/47（0.00 %），稳定版 8/90（8.89 %）；变差 0.103:1，不超过 20 个百分点 300:1",
    ]
