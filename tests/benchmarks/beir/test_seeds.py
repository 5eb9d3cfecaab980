"""Intervals over conversations and seeds: of one seed the known ones, of several wide enough for the next one."""

import numpy as np
import pytest

from benchmarks.beir.seeds import recipe_difference, recipe_mean
from qinglan.evaluation.statistics import Columns, Groups, bootstrap_means

CONVERSATIONS: Groups = np.arange(120) // 3


def trained(rng: np.random.Generator, seeds: int, between: float) -> Columns:
    """Numbers of so many trainings of one recipe, whose true mean is 0.5."""
    turns = rng.normal(0, 0.1, 40)[CONVERSATIONS][:, None]
    return 0.5 + turns + rng.normal(0, between, seeds)[None, :] + rng.normal(0, 0.2, (120, seeds))


def test_of_one_seed_the_interval_is_that_of_a_bootstrap_over_conversations() -> None:
    values = trained(np.random.default_rng(1), 1, 0.0)

    known = bootstrap_means(values, CONVERSATIONS, 500, 3)[0]

    assert recipe_mean(values, CONVERSATIONS, 500, 3) == pytest.approx(known[:3])


def test_seeds_that_differ_widen_the_interval() -> None:
    alike, apart = (
        recipe_mean(trained(np.random.default_rng(2), 4, width), CONVERSATIONS, 500, 0) for width in (0.0, 0.2)
    )

    assert apart.high - apart.low > 2 * (alike.high - alike.low)


@pytest.mark.slow
def test_the_interval_of_five_seeds_holds_the_recipes_own_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    held = [
        estimate.low <= 0.5 <= estimate.high
        for estimate in (recipe_mean(trained(rng, 5, 0.05), CONVERSATIONS, 200, number) for number in range(300))
    ]

    assert 0.85 <= np.mean(held) <= 0.99


def test_a_difference_of_recipes_is_of_the_same_questions() -> None:
    rng = np.random.default_rng(4)
    hard = rng.normal(0, 1, (120, 1))  # what both share is no part of their difference
    gap = recipe_difference(hard + 0.3 + rng.normal(0, 0.05, (120, 3)), hard, CONVERSATIONS, 500, 0)

    assert gap.value == pytest.approx(0.3, abs=0.03)
    assert 0.25 < gap.low < gap.value < gap.high < 0.35


def test_one_conversation_has_no_interval() -> None:
    assert np.isnan(recipe_mean(np.ones((3, 2)), np.zeros(3, dtype=np.int64), 200, 0).low)
