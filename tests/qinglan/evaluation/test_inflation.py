"""The inflation factor: known answers, and an interval that covers the truth as often as it says."""

import math

import numpy as np
import orjson
import pytest

from qinglan.evaluation.inflation import describe, inflation
from qinglan.evaluation.statistics import Columns, Groups

NAN = math.nan


def gains(
    rng: np.random.Generator, signal: float, outsider: float, turns: int = 240
) -> tuple[Columns, Columns, Groups]:
    """Paired differences of so many turns in conversations of four, alike within each."""
    conversations = np.arange(turns) // 4
    shared = rng.normal(0, 0.1, (turns // 4, 2))[conversations]
    noise = rng.normal(0, 0.2, (turns, 2)) + shared
    return signal + noise[:, 0], outsider + noise[:, 1], conversations


def test_the_factor_is_the_ratio_of_the_mean_gains_on_rows_that_have_both() -> None:
    signal, outsider = np.array([0.4, 0.2, NAN, 9.0]), np.array([0.2, 0.1, 5.0, NAN])

    part = inflation(signal, outsider, np.array([0, 1, 2, 3]), 200, 0)

    assert part.factor == pytest.approx(2.0)
    assert (part.n, part.conversations) == (2, 2)
    assert [part.signal, part.outsider] == pytest.approx([0.3, 0.15])
    assert [part.low, part.high] == pytest.approx([2.0, 2.0])


def test_an_outsider_that_saw_no_gain_gives_no_factor_and_the_sentence_says_so() -> None:
    part = inflation(np.array([0.4, 0.2]), np.array([-0.2, 0.1]), np.array([0, 1]), 200, 0)

    read = orjson.loads(orjson.dumps(part._asdict()))
    assert read["factor"] is read["low"] is read["high"] is None
    assert describe(read, "need score", "gold") == (
        "not defined: the outsider saw no gain (a gain of +0.300 by “need score”, which training goes by, and of "
        "-0.050 by “gold”, on the same 2 questions)."
    )


def test_nothing_measured_by_both_gives_no_factor() -> None:
    part = inflation(np.array([NAN, 0.2]), np.array([0.1, NAN]), np.array([0, 1]), 200, 0)

    assert part.n == 0
    assert describe(part._asdict(), "need score", "gold").startswith("not defined: no question was measured by both")


def test_an_outsiders_gain_that_may_be_none_leaves_the_interval_without_an_upper_end() -> None:
    part = inflation(*gains(np.random.default_rng(1), 0.3, 0.005), 2000, 0)

    assert part.high == math.inf
    assert 0 < part.low < part.factor
    assert "∞]" in describe(orjson.loads(orjson.dumps(part._asdict())), "need score", "gold")


def test_one_conversation_has_a_factor_and_no_interval() -> None:
    part = inflation(np.array([0.4, 0.2]), np.array([0.2, 0.1]), np.array([0, 0]), 200, 0)

    assert part.factor == pytest.approx(2.0)
    assert math.isnan(part.low) and math.isnan(part.high)
    words = describe(orjson.loads(orjson.dumps(part._asdict())), "need score", "gold")
    assert words.startswith("2.00 times, from a gain")


def test_a_factor_of_one_question_in_many_is_bounded_by_nothing() -> None:
    """On a public set two small models differed in one of 208 queries, and [0.00, 0.95] looked sure."""
    signal, outsider = np.zeros(60), np.zeros(60)
    signal[7], outsider[7] = 0.19, 0.2

    part = inflation(signal, outsider, np.arange(60) // 2, 2000, 0)

    assert part.factor == pytest.approx(0.95)
    assert (part.low, part.high) == (-math.inf, math.inf)
    assert "0.95 [−∞, ∞] times" in describe(orjson.loads(orjson.dumps(part._asdict())), "need score", "gold")


@pytest.mark.slow
def test_the_interval_holds_the_true_factor_about_19_times_in_20() -> None:
    rng = np.random.default_rng(7)
    parts = [inflation(*gains(rng, 0.24, 0.10), 300, number) for number in range(300)]

    assert 0.90 <= np.mean([part.low <= 2.4 <= part.high for part in parts]) <= 0.98
