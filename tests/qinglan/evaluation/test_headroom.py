"""Headroom: best of k samples over the greedy rewrite, by kind of question, and the advice that follows."""

import math

import pytest

from qinglan.evaluation.headroom import ALL, Headroom, RowOutcome, decide, measure_headroom
from qinglan.evaluation.statistics import Estimate

DRAWS = 500


def rows(
    count: int, greedy: float, samples: list[float], teacher: float = 0.0, kind: str = "gap"
) -> list[RowOutcome]:
    return [RowOutcome(f"{kind}-{number}", (kind,), teacher, greedy, samples) for number in range(count)]


def with_gain(value: float, low: float, high: float) -> Headroom:
    [headroom] = [measure_headroom(rows(3, 0.0, [0.0]), DRAWS, 0)[ALL]]
    return headroom._replace(gain=Estimate(value, low, high, 100))


def test_the_gain_is_what_the_best_sample_answers_and_greedy_does_not() -> None:
    outcomes = [*rows(30, 0.0, [0.0, 1.0, 0.0]), *rows(70, 1.0, [1.0, 0.0, 0.0])]

    headroom = measure_headroom(outcomes, DRAWS, 0)[ALL]

    assert (headroom.greedy.value, headroom.best.value) == (0.7, 1.0)
    assert headroom.gain.value == pytest.approx(0.3)
    assert headroom.gain.low < 0.3 < headroom.gain.high
    assert headroom.sampled.value == pytest.approx(1 / 3)


def test_a_greedy_hit_that_no_sample_repeats_counts_against_the_samples() -> None:
    assert measure_headroom(rows(10, 1.0, [0.0, 0.0]), DRAWS, 0)[ALL].gain.value == -1.0


def test_unreached_rows_are_those_that_neither_teacher_nor_model_answers() -> None:
    outcomes = [
        *rows(1, 0.0, [0.0, 0.0]), *rows(1, 0.0, [0.0, 1.0]), *rows(1, 1.0, [0.0, 0.0]),
        *rows(1, 0.0, [0.0, 0.0], teacher=1.0),
    ]  # fmt: skip

    headroom = measure_headroom(outcomes, DRAWS, 0)[ALL]

    assert headroom.unreached.value == 0.25
    assert headroom.learned.value == 0.0


def test_kinds_are_measured_one_by_one_and_a_row_may_be_of_several() -> None:
    outcomes = [*rows(5, 0.0, [1.0]), *rows(5, 1.0, [1.0], kind="documented")]
    outcomes += [RowOutcome("both", ("gap", "documented"), 0.0, 0.0, [0.0])]

    by_kind = measure_headroom(outcomes, DRAWS, 0)

    assert {kind: headroom.rows for kind, headroom in by_kind.items()} == {ALL: 11, "documented": 6, "gap": 6}
    assert by_kind["gap"].gain.value == pytest.approx(5 / 6)
    assert by_kind["documented"].gain.value == 0.0


def test_turns_of_one_conversation_widen_the_interval() -> None:
    apart = [RowOutcome(number, (), 0.0, float(number % 2), [1.0]) for number in range(60)]
    together = [
        RowOutcome(number // 2 % 10 + 10 * (number % 2), (), 0.0, float(number % 2), [1.0]) for number in range(60)
    ]

    def width(outcomes: list[RowOutcome]) -> float:
        gain = measure_headroom(outcomes, DRAWS, 0)[ALL].gain
        return gain.high - gain.low

    assert width(together) > 1.3 * width(apart)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (-0.01, 0.02, "not worth it"),
        (0.04, 0.09, "worth trying"),
        (0.01, 0.06, "not shown"),
        (0.03, 0.09, "worth trying"),
    ],
)
def test_advice_follows_the_interval_not_the_mean(low: float, high: float, word: str) -> None:
    assert decide(with_gain((low + high) / 2, low, high), worth=0.03).word == word


def test_one_conversation_alone_shows_nothing() -> None:
    outcomes = [RowOutcome("one", (), 0.0, 0.0, [1.0]) for _ in range(20)]

    headroom = measure_headroom(outcomes, DRAWS, 0)[ALL]

    assert math.isnan(headroom.gain.low)
    assert decide(headroom, worth=0.03).word == "not shown"
