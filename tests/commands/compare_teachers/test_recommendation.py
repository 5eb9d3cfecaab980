"""A teacher is recommended by whole intervals and enough conversations, never by a point alone."""

import math
from itertools import combinations, permutations
from typing import Any

import pytest

from commands.compare_teachers.table import PLAIN, Recommendation, fewest_conversations, recommend

HELPS = (0.5, 0.4, 0.6)
NAN = math.nan


def gap(difference: float, low: float, high: float, p: float = 0.001, conversations: int = 60) -> dict[str, Any]:
    ends = {"difference": difference, "low": low, "high": high}
    return {**ends, "p_holm": p, "conversations": conversations, "needed_for_margin": 870}


def recommended(
    systems: dict[str, tuple[float, float, float]],
    gaps: dict[tuple[str, str], dict[str, Any]],
    plain: tuple[float, float, float] = HELPS,
) -> Recommendation:
    """Each system has its level, cost and share of failed rows."""
    gaps = gaps | {(name, PLAIN): gap(*plain) for name in systems}
    levels = {
        name: {"top1": {"value": value}, "cost": cost, "failed": failed}
        for name, (value, cost, failed) in systems.items()
    }
    return recommend(levels | {PLAIN: {}}, {f"{a} − {b}": values for (a, b), values in gaps.items()}, "top1", 0.03)


CASES = [
    # A minus B, the cost of B where A costs 1, the word, and the teacher to take
    (gap(0.041, 0.012, 0.070), 0.1, "better", "A"),
    (gap(0.02, 0.01, 0.025), 0.1, "as good", "B"),
    (gap(0.02, -0.01, 0.025, p=0.2), 0.1, "as good", "B"),
    (gap(0.02, -0.01, 0.025, p=0.2), 2.0, "as good", "A"),
    (gap(0.02, -0.03, 0.07, p=0.3), 0.1, "not shown", "A"),
    (gap(0.08, -0.01, 0.17, p=0.2), 2.0, "not shown", "A"),
    (gap(0.08, 0.01, 0.17, p=0.2), 0.1, "not shown", "A"),
    (gap(0.3, 0.2, 0.4, conversations=19), 0.1, "not shown", "A"),
    (gap(0.3, 0.2, 0.4, conversations=20), 0.1, "better", "A"),
    (gap(0.0, 0.0, 0.0, p=1.0, conversations=99), 0.1, "not shown", "A"),
    (gap(0.0, 0.0, 0.0, p=1.0, conversations=100), 0.1, "as good", "B"),
    (gap(NAN, NAN, NAN, p=NAN, conversations=0), 0.1, "not shown", "A"),
]


@pytest.mark.parametrize(("a_minus_b", "cost", "word", "take"), CASES)
def test_a_pair_is_judged_by_its_interval_its_p_and_its_conversations(
    a_minus_b: dict[str, Any], cost: float, word: str, take: str
) -> None:
    result = recommended({"B": (0.7, cost, 0.0), "A": (0.75, 1.0, 0.0)}, {("A", "B"): a_minus_b})

    assert result == (word, take, 870 if word == "not shown" else None)


@pytest.mark.parametrize("order", list(permutations("ABC")))
def test_of_three_equal_teachers_the_cheapest_is_taken_in_any_order(order: tuple[str, ...]) -> None:
    systems = {name: (0.75, {"A": 3.0, "B": 0.5, "C": 2.0}[name], 0.0) for name in order}
    gaps = {pair: gap(0.0, -0.02, 0.02, p=1.0) for pair in combinations("BCA", 2)}

    assert recommended(systems, gaps)[:2] == ("as good", "B")


def test_a_dearer_teacher_may_stay_undecided_if_a_cheaper_one_is_as_good() -> None:
    systems = {"A": (0.75, 1.0, 0.0), "B": (0.74, 0.1, 0.0), "C": (0.73, 2.0, 0.0)}
    gaps = {("A", "B"): gap(0.01, -0.01, 0.02), ("A", "C"): gap(0.02, -0.1, 0.2, p=0.5)}

    assert recommended(systems, gaps)[:2] == ("as good", "B")


def test_a_teacher_that_lost_too_many_rows_is_never_recommended() -> None:
    systems = {"A": (0.75, 1.0, 0.0), "dead": (0.9, 0.0, 0.21)}

    assert recommended(systems, {("dead", "A"): gap(0.15, 0.1, 0.2)})[:2] == ("better", "A")


@pytest.mark.parametrize(
    ("plain", "failed", "none"),
    [((-0.6, -0.7, -0.4), 0.0, True), ((-0.1, -0.3, 0.1), 0.0, False), (HELPS, 0.0, False), (HELPS, 1.0, True)],
)
def test_none_is_taken_if_none_gave_rewrites_or_the_plain_question_is_better(
    plain: tuple[float, float, float], failed: float, none: bool
) -> None:
    systems = {"A": (0.2, 1.0, failed), "B": (0.1, 0.1, failed)}

    result = recommended(systems, {("A", "B"): gap(0.1, 0.05, 0.15)}, plain)

    assert (result == ("none", "", None)) is none


def test_a_tie_needs_so_many_conversations_that_it_could_hide_no_margin() -> None:
    tie, spread = gap(0.0, 0.0, 0.0), gap(0.0, -0.1, 0.1)

    assert [fewest_conversations(tie, margin) for margin in (0.03, 0.5, 0.0)] == [100, 20, math.inf]
    assert fewest_conversations(spread, 0.03) == 20
