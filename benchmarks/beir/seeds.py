"""Means and differences of recipes that were trained from several seeds: intervals over conversations and seeds.

A recipe's numbers are an array of one row a question and one column a seed; a system without training has one column.
Conversations and seeds are drawn apart and crossed: the next user, and the next training of the same recipe.
"""

import math
from typing import NamedTuple

import numpy as np

from qinglan.evaluation.statistics import INTERVAL_PERCENTILES, Columns, Groups, bootstrap_sample, group_sums


class SeedEstimate(NamedTuple):
    """A mean, or a difference of two means, with its 95 % interval."""

    value: float
    low: float
    high: float


def recipe_mean(values: Columns, conversations: Groups, draws: int, seed: int) -> SeedEstimate:
    """The mean over questions and seeds."""
    return recipe_difference(values, np.zeros((len(values), 1)), conversations, draws, seed)


def recipe_difference(first: Columns, second: Columns, conversations: Groups, draws: int, seed: int) -> SeedEstimate:
    """One recipe's mean minus another's, on the same questions."""
    rng = np.random.default_rng([seed, 2])
    recipes = [group_sums(values, conversations)[0] for values in (first, second)]
    rows = np.bincount(conversations).astype(np.float64)

    def statistic(times: Columns) -> Columns:
        means = [(times @ sums * _seed_weights(sums.shape[1], len(times), rng)).sum(axis=1) for sums in recipes]
        return np.asarray(((means[0] - means[1]) / (times @ rows))[:, None])

    drawn = bootstrap_sample(len(rows), statistic, draws, seed)
    value = float(first.mean() - second.mean())
    if not len(drawn):
        return SeedEstimate(value, math.nan, math.nan)
    low, high = np.percentile(drawn[:, 0], INTERVAL_PERCENTILES)
    return SeedEstimate(value, float(low), float(high))


def _seed_weights(seeds: int, draws: int, rng: np.random.Generator) -> Columns:
    """The weight of each seed in each draw.

    Drawing k seeds from k shows (k - 1) / k of their variance, half of it for two: the deviations from equal weights
    are widened by as much.
    """
    if seeds == 1:
        return np.ones((draws, 1))
    drawn = rng.multinomial(seeds, np.full(seeds, 1 / seeds), draws) / seeds
    return np.asarray(1 / seeds + (drawn - 1 / seeds) * math.sqrt(seeds / (seeds - 1)))
