"""Measures of answers: by hand, against scikit-learn, and by properties."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.evaluation.style.measures import (
    BINS,
    MEASURES,
    accuracy,
    bin_of,
    compute_measures,
    confusions,
    f1,
    kappa,
    macro_f1,
    precision,
    recall,
    row_sums,
    undo_temperature,
    weighted_f1,
)

# Two labels: 8 of the first (6 found), 4 of the second (3 found).
TABLE = np.array([[[6.0, 2.0], [1.0, 3.0]]])
ANSWERS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)


def matrix(pairs: list[tuple[int, int]], width: int = 4) -> np.ndarray[Any, Any]:
    truth, called = np.array(pairs).T
    return np.asarray(confusions(truth, called, width).sum(axis=0).reshape(1, width, width))


def test_a_table_by_hand() -> None:
    assert accuracy(TABLE)[0] == pytest.approx(9 / 12)
    assert precision(TABLE)[0] == pytest.approx([6 / 7, 3 / 5])
    assert recall(TABLE)[0] == pytest.approx([6 / 8, 3 / 4])
    assert f1(TABLE)[0] == pytest.approx([12 / 15, 6 / 9])
    assert macro_f1(TABLE)[0] == pytest.approx((12 / 15 + 6 / 9) / 2)
    assert weighted_f1(TABLE)[0] == pytest.approx((8 * 12 / 15 + 4 * 6 / 9) / 12)
    # By chance: (8 x 7 + 4 x 5) / 144.
    assert kappa(TABLE)[0] == pytest.approx((0.75 - 76 / 144) / (1 - 76 / 144))


def test_a_label_that_is_neither_there_nor_said_does_not_count() -> None:
    result = matrix([(0, 0), (1, 1), (1, 0)])

    assert np.isnan(f1(result)[0][2:]).all()
    assert macro_f1(result)[0] == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert math.isnan(macro_f1(np.zeros((1, 4, 4)))[0])


def test_the_calibration_error_of_known_cases() -> None:
    truth = np.array([0] * 10)
    half = np.tile([0.9, 0.1], (10, 1))
    half[5:] = [0.1, 0.9]

    def ece(probabilities: np.ndarray[Any, Any]) -> float:
        result = compute_measures(row_sums(truth, probabilities).sum(axis=0)[None, :], 2)
        return float(result[0][MEASURES.index("ece")])

    # As sure as .9, right in half: .4 too sure. Always right and sure: none. Two bins, weighted by their rows.
    assert ece(half) == pytest.approx(0.4)
    assert ece(np.tile([1.0, 0.0], (10, 1))) == pytest.approx(0.0)
    both = np.vstack([np.tile([0.6, 0.4], (4, 1)), np.tile([0.9, 0.1], (6, 1))])
    assert ece(both) == pytest.approx((4 * 0.4 + 6 * 0.1) / 10)


@settings(max_examples=40)
@given(ANSWERS, st.integers(0, 5))
def test_drawing_a_row_twice_is_having_it_twice(pairs: list[tuple[int, int]], seed: int) -> None:
    truth = np.array([label for label, _ in pairs])
    probabilities = np.random.default_rng(seed).dirichlet(np.ones(4), len(pairs))
    times = np.random.default_rng(seed).integers(0, 3, len(pairs))
    if not times.any():
        return

    drawn = compute_measures(times[None, :] @ row_sums(truth, probabilities), 4)
    repeated = compute_measures(
        row_sums(truth.repeat(times), probabilities.repeat(times, axis=0)).sum(axis=0)[None, :], 4
    )

    assert np.allclose(drawn, repeated, equal_nan=True)
    assert ((np.nan_to_num(drawn[:, :4]) >= 0) & (np.nan_to_num(drawn[:, :4]) <= 1 + 1e-9)).all()


@given(st.floats(0.3, 3), st.integers(0, 20))
def test_the_temperature_can_be_taken_back(temperature: float, seed: int) -> None:
    logits = np.random.default_rng(seed).normal(0, 2, (6, 5))

    def softmax(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        raised = np.exp(values)
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    assert np.allclose(undo_temperature(softmax(logits / temperature), temperature), softmax(logits))


def test_a_bin_holds_its_lower_end_and_the_last_one_both() -> None:
    assert bin_of(np.array([0.0, 0.0666, 0.0667, 0.999, 1.0])).tolist() == [0, 0, 1, BINS - 1, BINS - 1]
