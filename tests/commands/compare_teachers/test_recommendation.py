"""What is said of teachers follows from intervals and prices, and never claims what the rows do not show."""

import math
import re
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.compare_teachers.recommendation import Recommendation, TeacherDifference, TeacherScore, recommend
from commands.compare_teachers.results import none_helps
from qinglan.evaluation.statistics import paired_differences
from qinglan.messages import LANGUAGE, translated

NAN = math.nan


def standing(name: str, value: float, cost: float, failed: float = 0.0) -> TeacherScore:
    return TeacherScore(name, value, cost, failed)


def gap(
    difference: float, low: float, high: float, p: float = 0.001, needed: int | None = 870, conversations: int = 60
) -> TeacherDifference:
    return TeacherDifference(difference, low, high, p, needed, 1306, 4 * conversations, conversations)


def recommended(
    a_minus_b: TeacherDifference, cost_a: float = 1.0, cost_b: float = 0.1, **failed: float
) -> Recommendation:
    """Of A, which finds the gold passage first as often as its gap says, and B."""
    a = standing("A", 0.75 + a_minus_b.difference, cost_a, failed.get("a", 0.0))
    return recommend(
        [a, standing("B", 0.75, cost_b, failed.get("b", 0.0))], {("A", "B"): a_minus_b}, 0.03, 120, "points"
    )


def test_a_teacher_shown_to_be_better_is_taken_with_its_interval() -> None:
    result = recommended(gap(0.041, 0.012, 0.070))

    assert (result.word, result.take) == ("better", "A")
    assert "A minus B: +4.1 points [+1.2, +7.0]" in result.lines[1]


def test_where_no_difference_is_shown_the_cheap_one_is_taken_with_the_rows_that_would_tell() -> None:
    result = recommended(gap(0.010, -0.030, 0.050, p=0.6))

    assert (result.word, result.take) == ("not shown", "B")
    assert result.lines[0].startswith("No difference shown with 120 rows; 870 would be needed")
    assert "B costs 0.1 times what A does: take B, unless up to 5.0 points matter" in result.lines[0]


def test_a_cheap_one_that_looks_much_worse_is_not_taken_on_few_rows() -> None:
    result = recommended(gap(0.10, -0.01, 0.21, p=0.08, needed=140))

    assert (result.word, result.take) == ("not shown", "A")
    assert "Until about 140 rows have told, take A" in result.lines[0]


def test_within_the_margin_the_cheapest_is_taken_even_where_it_is_shown_to_be_a_little_worse() -> None:
    equal, little = recommended(gap(0.0, -0.01, 0.01, p=1.0)), recommended(gap(0.015, 0.005, 0.025))

    assert (equal.word, equal.take, little.word, little.take) == ("as good", "B", "as good", "B")
    assert "worse, yet by less than the 3.0 points" in little.lines[1]


def test_the_interval_alone_does_not_show_what_the_corrected_p_does_not() -> None:
    assert recommended(gap(0.045, 0.001, 0.089, p=0.06)).word == "not shown"


def test_nothing_known_of_the_difference_is_nothing_shown() -> None:
    two = [standing("A", 0.8, 1.0), standing("B", 0.75, 0.1)]
    result = recommend(two, {("A", "B"): TeacherDifference(NAN, NAN, NAN, NAN, None, None, 0, 0)}, 0.03, 0, "points")

    assert (result.word, result.take) == ("not shown", "A")
    assert "an unknown amount [unknown, unknown]: no difference is shown; no row is known of both." in result.lines[1]
    assert not any("nan" in line or "about 0 rows" in line for line in result.lines)


def test_a_dearer_one_that_is_not_shown_to_be_better_is_not_waited_for() -> None:
    result = recommended(gap(0.010, -0.030, 0.050, p=0.6), cost_a=0.1, cost_b=1.0)

    assert (result.word, result.take) == ("not shown", "A")
    assert "costs no less" in result.lines[0]


@pytest.mark.parametrize(
    ("a_minus_b", "cost_b"),
    [
        (gap(0.041, 0.012, 0.070), 0.1),
        (gap(0.01, -0.02, 0.04, p=0.5, needed=391), 0.1),
        (gap(0.01, -0.02, 0.04, p=0.5, needed=None), 0.1),
        (gap(0.08, -0.01, 0.17, p=0.2), 0.1),
        (gap(0.02, 0.01, 0.025), 0.1),
        (gap(0.02, -0.01, 0.025, p=0.2), 2.0),
        (gap(0.0, 0.0, 0.0, p=1.0, needed=None, conversations=8), 0.1),
        (gap(NAN, NAN, NAN, p=NAN, needed=None), NAN),
    ],
)
def test_chinese_advice_has_no_english_word(
    a_minus_b: TeacherDifference, cost_b: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LANGUAGE, "zh")

    lines = [translated(line) for line in recommended(a_minus_b, cost_b=cost_b).lines]

    assert re.findall("[A-Za-z]{2,}", " ".join(lines)) == []


def test_rows_without_a_rewrite_are_named() -> None:
    result = recommended(gap(0.041, 0.012, 0.070), b=0.12)

    assert "B gave no rewrite for 12.0% of the rows" in result.lines[-1]
    assert not any("A gave no rewrite" in line for line in result.lines)


def test_of_three_the_cheapest_that_is_as_good_is_taken() -> None:
    gaps = {
        ("A", "B"): gap(0.005, -0.01, 0.02, p=1.0),
        ("A", "C"): gap(0.20, 0.15, 0.25),
        ("B", "C"): gap(0.195, 0.14, 0.25),
    }
    three = [standing("A", 0.8, 3.0), standing("B", 0.795, 2.0), standing("C", 0.6, 0.1)]
    result = recommend(three, gaps, 0.03, 500, "points")

    assert (result.word, result.take) == ("as good", "B")


def test_the_quality_of_an_examiner_is_told_in_its_own_unit() -> None:
    two = [standing("A", 4.4, 1.0), standing("B", 4.1, 0.1)]
    result = recommend(
        two, {("B", "A"): TeacherDifference(-0.3, -0.4, -0.2, 0.001, 90, 90, 60, 60)}, 0.12, 120, "of 5"
    )

    assert "A minus B: +0.30 of 5 [+0.20, +0.40]" in result.lines[1]


@pytest.mark.parametrize(
    ("one", "margin", "word", "said"),
    [
        (gap(-0.0, -0.0, -0.0, p=1.0, needed=None, conversations=7), 0.03, "tie", "all 28 rows; so few conversations "
         "may hide up to 42.9 points."),
        (gap(0.0, 0.0, 0.0, p=1.0, needed=None, conversations=99), 0.03, "tie", "may hide up to 3.0 points."),
        (gap(0.0, 0.0, 0.0, p=1.0, needed=None, conversations=100), 0.03, "tie", "alike on all 400 rows."),
        (gap(0.0, 0.0, 0.0, p=1.0, needed=None, conversations=1), 0.01, "tie", "may hide up to 100.0 points."),
        (gap(0.0, 0.0, 0.0, p=1.0, needed=None, conversations=900), 0.0, "tie", "may hide up to 0.3 points."),
        (gap(0.02, 0.02, 0.02, conversations=2), 0.03, "not shown", "100 are needed, about 400"),
        (gap(0.01, 0.0, 0.02, p=1.0, conversations=19), 0.03, "not shown", "20 are needed, about 80 rows"),
        (gap(0.01, -0.0001, 0.02, p=1.0, conversations=20), 0.03, "as good", "less than 3.0 points apart"),
        (gap(0.3, 0.2, 0.4, conversations=19), 0.03, "not shown", "20 are needed, about 80 rows"),
        (gap(0.3, 0.2, 0.4, conversations=20), 0.03, "better", "shown to be worse"),
    ],
)  # fmt: skip
def test_few_conversations_show_nothing_and_it_says_how_many_rows_would(
    one: TeacherDifference, margin: float, word: str, said: str
) -> None:
    two = [standing("A", 0.75, 1.0), standing("B", 0.75 - one.difference, 0.1)]
    result = recommend(two, {("A", "B"): one}, margin, one.rows, "points")

    assert (result.word, said in result.lines[1]) == (word, True), result.lines
    assert "-0.0" not in " ".join(result.lines)


def test_rows_that_all_come_out_alike_are_no_proof_that_two_are_alike() -> None:
    """The statistics themselves, as a comparison takes them: a tie that says what it may hide."""
    for groups in ([0] * 10 + [1] * 10, [at // 3 for at in range(20)]):
        result = paired_differences(np.zeros((20, 1)), np.array(groups), 200, 0)[0]
        one = TeacherDifference(*result[:4], None, None, result.n, result.conversations)

        assert recommended(one).word == "tie"
        assert "may hide up to" in recommended(one).lines[1]
    single = paired_differences(np.zeros((20, 1)), np.zeros(20, dtype=int), 200, 0)[0]  # has no interval
    assert recommended(TeacherDifference(*single[:4], None, None, 20, single.conversations)).word == "not shown"
    alike = paired_differences(np.zeros((100, 1)), np.arange(100), 200, 0)[0]
    assert "hide" not in recommended(TeacherDifference(*alike[:4], None, None, alike.n, alike.conversations)).lines[1]


@pytest.mark.parametrize("order", list(permutations("ABC")))
def test_three_teachers_that_come_out_alike_are_a_tie_and_no_one_is_the_best(order: tuple[str, ...]) -> None:
    costs = {"A": 3.0, "B": 0.5, "C": 2.0}
    gaps = {pair: gap(0.0, 0.0, 0.0, p=1.0, needed=None, conversations=7) for pair in combinations(order, 2)}
    result = recommend([standing(name, 0.75, costs[name]) for name in order], gaps, 0.03, 28, "points")

    assert (result.word, result.take) == ("tie", "B")
    assert result.lines[0].startswith("A tie: ") and result.lines[0].endswith("Take B: no other costs less.")
    assert not [line for line in result.lines if "needed" in line or "best" in line]


def test_of_teachers_that_tie_the_cheapest_is_taken_though_rows_of_one_alone_lift_the_other() -> None:
    same = gap(0.0, 0.0, 0.0, p=1.0, needed=None, conversations=7)
    found = recommend([standing("A", 0.80, 3.0), standing("B", 0.75, 0.5)], {("A", "B"): same}, 0.03, 28, "points")

    assert (found.word, found.take) == ("tie", "B")
    assert found.lines[0].endswith("Take B: no other costs less.")


def test_a_cheap_one_that_ties_with_the_best_is_taken_beside_one_that_does_not() -> None:
    same, less = gap(0.0, 0.0, 0.0, p=1.0, needed=None, conversations=7), gap(0.3, 0.2, 0.4, conversations=7)
    three = [standing("A", 0.8, 3.0), standing("B", 0.8, 0.5), standing("C", 0.5, 0.1)]
    tied = {("A", "B"): same, ("A", "C"): less, ("B", "C"): less}
    result = recommend(three, tied, 0.03, 28, "points")

    assert (result.word, result.take) == ("not shown", "B")
    assert "A minus B" not in result.lines[0] and any("B minus A: +0.0 points" in line for line in result.lines)


@pytest.mark.parametrize(
    ("failed", "value", "cost", "why"),
    [
        (1.0, 0.73, NAN, "more than 20% are missing"), (0.21, 0.9, 0.0, "more than 20% are missing"),
        (0.0, NAN, 0.0, "its quality or its cost is unknown"), (0.0, 0.9, NAN, "its quality or its cost is unknown"),
    ],
)  # fmt: skip
def test_a_failing_teacher_is_never_recommended_however_cheap(
    failed: float, value: float, cost: float, why: str
) -> None:
    two = [standing("A", 0.75, 1.0), standing("dead", value, cost, failed)]
    gaps = {("A", "dead"): gap(0.02, -0.02, 0.06, p=0.5)}

    for order in (two, two[::-1]):
        result = recommend(order, gaps, 0.03, 120, "points")
        assert (result.word, result.take) == ("alone", "A")
        assert result.lines[-1] == f"dead is left out of the choice: {why}."


@pytest.mark.parametrize("failed", [0.0, 1.0])
def test_without_a_row_or_with_every_one_refused_nobody_is_taken(failed: float) -> None:
    three = [standing(name, NAN if failed == 0.0 else 0.4, NAN, failed) for name in "ABC"]
    nothing = TeacherDifference(NAN, NAN, NAN, NAN, None, None, 0, 0)
    result = recommend(three, dict.fromkeys(combinations("ABC", 2), nothing), 0.03, 0, "points")

    assert (result.word, result.take) == ("none", "")
    assert "Take none of them" in result.lines[0]
    assert sum("left out of the choice" in line for line in result.lines) == 3


@pytest.mark.parametrize("order", list(permutations("ABC")))
@pytest.mark.parametrize(("conversations", "word"), [(1, "not shown"), (60, "as good")])
def test_of_three_equal_ones_the_cheapest_is_taken_in_whatever_order(
    order: tuple[str, ...], conversations: int, word: str
) -> None:
    costs = {"A": 3.0, "B": 0.5, "C": 2.0}
    three = [standing(name, 0.75, costs[name]) for name in order]
    gaps = {
        pair: gap(0.0, -0.02, 0.02, p=1.0, needed=None, conversations=conversations)
        for pair in combinations(order, 2)
    }
    result = recommend(three, gaps, 0.03, 240, "points")

    assert (result.word, result.take) == (word, "B")


@pytest.mark.slow
@given(
    difference=st.floats(-0.3, 0.3), below=st.floats(0, 0.2), above=st.floats(0, 0.2), p=st.floats(0, 1),
    costs=st.tuples(st.floats(0.01, 10), st.floats(0.01, 10)),
)  # fmt: skip
def test_better_is_said_only_where_the_whole_interval_says_so(
    difference: float, below: float, above: float, p: float, costs: tuple[float, float]
) -> None:
    one = gap(difference, difference - below, difference + above, p)
    result = recommended(one, *costs)
    shown = p < 0.05 and (one.low > 0 or one.high < 0)

    assert result.word != "better" or shown
    assert result.take in ("A", "B")
    if result.word == "better":
        assert result.take == ("A" if difference > 0 else "B")


@pytest.mark.parametrize("turned", [False, True])
def test_the_order_in_which_a_pair_is_named_changes_nothing(turned: bool) -> None:
    one = gap(0.041, 0.012, 0.070)
    gaps = {("B", "A"): one.turned()} if turned else {("A", "B"): one}
    result = recommend([standing("A", 0.79, 1.0), standing("B", 0.75, 0.1)], gaps, 0.03, 120, "points")

    assert (result.word, result.take) == ("better", "A")


AGAINST_PLAIN = [
    # intervals and p of two teachers minus the plain question, and whether none is taken
    ([(-0.6, -0.4, 0.001), (-0.6, -0.3, 0.001)], True),
    ([(-0.6, -0.4, 0.001), (-0.1, 0.1, 0.9)], False),
    ([(-0.6, -0.4, 0.001), (0.1, 0.2, 0.001)], False),
    ([(-0.6, -0.4, 0.2), (-0.6, -0.4, 0.2)], False),
    ([(float("nan"), float("nan"), float("nan"))] * 2, False),
]


@pytest.mark.parametrize(("gaps", "none"), AGAINST_PLAIN)
def test_none_is_taken_where_the_plain_question_is_better_than_every_teacher(
    gaps: list[tuple[float, float, float]], none: bool
) -> None:
    advice = Recommendation("tie", "mini", ["A tie: take mini.", "mini minus big: 0"])
    teachers: dict[str, Any] = {"plain": {"top1": {"value": 0.574}}}
    for name, (low, high, p) in zip(("mini", "big"), gaps, strict=True):
        teachers[name] = {"top1": {"value": 0.085}, "against_plain": {"low": low, "high": high, "p": p}}

    result = none_helps(advice, teachers, ["mini", "big"], "top1")
    assert (result.word, result.take) == (("none", "") if none else ("tie", "mini"))
    if none:
        assert result.lines == [
            "Take none of them: no rewrite is better than every teacher. The plain question has 57.4 points, the "
            "best teacher 8.5 points. Change generate.system_prompt, or try other models.",
            "mini minus big: 0",
        ]
    else:
        assert result == advice
