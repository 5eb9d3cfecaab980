"""The plan's formula, its numbers worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.reward.config import RewardConfig, Weights
from qinglan.reward.terms.seed_v1 import compute_reward, retrieval_quality

PLAN = RewardConfig(mode="seed_v1")
UNIT = st.floats(0, 1)
SCORES = st.lists(UNIT, max_size=10)

TANH_15, TANH_3, TANH_06 = 0.905148, 0.995055, 0.537050
"""tanh of 1.5, 3 and .6, from a table."""


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([], 0.0),
        ([0.8], 0.8),  # .6 * .8 + .4 * .8
        ([0.9, 0.6, 0.3], 0.78),  # .6 * .9 + .4 * .6
        ([0.9, 0.6, 0.3, 1.0, 1.0], 0.78),  # the fourth and fifth do not count
        ([0.0, 0.6], 0.12),  # .6 * 0 + .4 * .3
    ],
)
def test_quality_is_six_tenths_of_the_first_and_four_of_the_mean_of_three(
    scores: list[float], expected: float
) -> None:
    assert retrieval_quality(scores) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("judge", "judge_teacher", "scores", "scores_teacher", "expected"),
    [
        (0.8, 0.8, [0.5], [0.5], 0.0),  # a tie in everything
        (0.8, 0.8, [0.9], [0.4], 0.40 * TANH_15 + 0.25 * 0.5),  # finds better: .362 + .125
        (0.8, 0.8, [0.4], [0.9], -0.40 * TANH_15 - 0.25 * 0.3),  # finds worse: -.362 - .075
        (1.0, 0.8, [0.5], [0.5], 0.35 * TANH_06),  # judged a point better: .188
        (0.2, 1.0, [], [1.0], -0.35 * 0.983675 - 0.40 * TANH_3 - 0.25 * 0.3),  # tanh(2.4) = .983675
        (1.0, 0.0, [1.0], [], 0.35 * TANH_3 + 0.40 * TANH_3 + 0.25 * 0.5),  # the most there is: .871
    ],
)
def test_the_reward_is_the_plans(
    judge: float, judge_teacher: float, scores: list[float], scores_teacher: list[float], expected: float
) -> None:
    assert compute_reward(judge, judge_teacher, scores, scores_teacher, PLAN) == pytest.approx(expected, abs=1e-5)


@given(UNIT, UNIT, SCORES, SCORES)
def test_the_seed_reward_stays_between_minus_one_and_one(
    judge: float, other: float, scores: list[float], rest: list[float]
) -> None:
    heavy = RewardConfig(mode="seed_v1", weights=Weights(judge=1, retrieval=1, win=1))

    assert -1 <= compute_reward(judge, other, scores, rest, heavy) <= 1
