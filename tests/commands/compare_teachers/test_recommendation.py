"""A teacher is recommended by whole intervals and enough conversations, never by a point alone."""

import math
from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.compare_teachers.report import PLAIN, Recommendation, Score, fewest_conversations, recommend
from components.evaluation.rewriter.measures import METRICS

HELPS = (0.5, 0.4, 0.6)
NAN = math.nan


def gap(difference: float, low: float, high: float, p: float = 0.001, conversations: int = 60) -> dict[str, Any]:
    ends = {"difference": difference, "low": low, "high": high}
    return {**ends, "p_holm": p, "conversations": conversations, "n": 4 * conversations, "needed_for_margin": 870}


def recommended(
    scores: list[Score], gaps: dict[tuple[str, str], dict[str, Any]], plain: tuple[float, float, float] = HELPS
) -> Recommendation:
    gaps = gaps | {(score.name, PLAIN): gap(*plain) for score in scores}
    paired = {f"{a} − {b}": {"first": a, "second": b, **values} for (a, b), values in gaps.items()}
    return recommend(scores, paired, 0.03, METRICS["top1"])


CASES = [
    # A minus B, the cost of B where A costs 1, the word, and the teacher to take
    (gap(0.041, 0.012, 0.070), 0.1, "better", "A"),
    (gap(0.02, 0.01, 0.025), 0.1, "as good", "B"),
    (gap(0.02, -0.01, 0.025, p=0.2), 0.1, "as good", "B"),
    (gap(0.02, -0.01, 0.025, p=0.2), 2.0, "as good", "A"),
    (gap(0.02, -0.03, 0.07, p=0.3), 0.1, "not shown", "B"),
    (gap(0.08, -0.01, 0.17, p=0.2), 0.1, "not shown", "A"),
    (gap(0.08, -0.01, 0.17, p=0.2), 2.0, "not shown", "A"),
    (gap(0.08, 0.01, 0.17, p=0.2), 0.1, "not shown", "A"),
    (gap(0.3, 0.2, 0.4, conversations=19), 0.1, "not shown", "A"),
    (gap(0.3, 0.2, 0.4, conversations=20), 0.1, "better", "A"),
    (gap(0.0, 0.0, 0.0, p=1.0, conversations=99), 0.1, "not shown", "B"),
    (gap(0.0, 0.0, 0.0, p=1.0, conversations=100), 0.1, "as good", "B"),
    (gap(NAN, NAN, NAN, p=NAN, conversations=0), 0.1, "not shown", "A"),
]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("a_minus_b", "cost", "word", "take"), CASES)
def test_a_pair_is_judged_by_its_interval_its_p_and_its_conversations(
    a_minus_b: dict[str, Any], cost: float, word: str, take: str, turned: bool
) -> None:
    ends = {"difference": -a_minus_b["difference"], "low": -a_minus_b["high"], "high": -a_minus_b["low"]}
    gaps = {("B", "A"): a_minus_b | ends} if turned else {("A", "B"): a_minus_b}

    result = recommended([Score("A", 0.75, 1.0, 0.0), Score("B", 0.7, cost, 0.0)], gaps)

    assert (result.word, result.take) == (word, take), result.lines


@pytest.mark.parametrize("order", list(permutations("ABC")))
@pytest.mark.parametrize(("conversations", "word"), [(1, "not shown"), (60, "as good")])
def test_of_three_equal_teachers_the_cheapest_is_taken_in_any_order(
    order: tuple[str, ...], conversations: int, word: str
) -> None:
    costs = {"A": 3.0, "B": 0.5, "C": 2.0}
    gaps = {pair: gap(0.0, -0.02, 0.02, p=1.0, conversations=conversations) for pair in combinations(order, 2)}

    result = recommended([Score(name, 0.75, costs[name], 0.0) for name in order], gaps)

    assert (result.word, result.take) == (word, "B")


@pytest.mark.parametrize(("value", "cost", "failed"), [(0.9, 0.0, 0.21), (NAN, 0.0, 0.0), (0.9, NAN, 0.0)])
def test_a_teacher_that_failed_or_is_not_known_is_never_recommended(value: float, cost: float, failed: float) -> None:
    scores = [Score("A", 0.75, 1.0, 0.0), Score("dead", value, cost, failed)]

    result = recommended(scores, {("A", "dead"): gap(0.02, -0.02, 0.06, p=0.5)})

    assert (result.word, result.take) == ("better", "A")
    assert result.lines[-1].startswith("dead is left out of the choice")


@pytest.mark.parametrize(
    ("plain", "failed", "none"),
    [((-0.6, -0.7, -0.4), 0.0, True), ((-0.1, -0.3, 0.1), 0.0, False), (HELPS, 0.0, False), (HELPS, 1.0, True)],
)
def test_none_is_taken_if_none_gave_rewrites_or_the_plain_question_is_better(
    plain: tuple[float, float, float], failed: float, none: bool
) -> None:
    scores = [Score("A", 0.2, 1.0, failed), Score("B", 0.1, 0.1, failed)]

    result = recommended(scores, {("A", "B"): gap(0.1, 0.05, 0.15)}, plain)

    assert ((result.word, result.take) == ("none", "")) is none


def test_a_tie_needs_so_many_conversations_that_it_could_hide_no_margin() -> None:
    tie, spread = gap(0.0, 0.0, 0.0), gap(0.0, -0.1, 0.1)

    assert [fewest_conversations(tie, margin) for margin in (0.03, 0.5, 0.0)] == [100, 20, math.inf]
    assert fewest_conversations(spread, 0.03) == 20


@pytest.mark.slow
@given(
    difference=st.floats(-0.3, 0.3), below=st.floats(0, 0.2), above=st.floats(0, 0.2), p=st.floats(0, 1),
    costs=st.tuples(st.floats(0.01, 10), st.floats(0.01, 10)),
)  # fmt: skip
def test_better_is_concluded_only_if_the_whole_interval_shows_it(
    difference: float, below: float, above: float, p: float, costs: tuple[float, float]
) -> None:
    a_minus_b = gap(difference, difference - below, difference + above, p)
    best, worst = ("A", "B") if difference > 0 else ("B", "A")
    scores = [Score(name, 0.8 if name == best else 0.7, cost, 0.0) for name, cost in zip("AB", costs, strict=True)]

    result = recommended(scores, {("A", "B"): a_minus_b})

    assert result.take in (best, worst)
    if result.word == "better":
        assert result.take == best and p < 0.05 and (a_minus_b["low"] > 0 or a_minus_b["high"] < 0)
