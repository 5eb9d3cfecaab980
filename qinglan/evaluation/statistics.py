"""The mathematics of comparing systems on the same questions: pure functions of numbers and a seed.

Turns of one conversation are alike, so whole conversations are drawn, and whole conversations flip their signs.
A column holds one number a question; NaN where there is none (no gold passage, not examined, another tenant).

What is no mean, F1 for one, is a function of sums: `bootstrap_estimates` and `permutation_p_values` take that
function and each group's sums. A group is whatever is alike: a conversation, or texts that are nearly the same.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Columns = NDArray[np.float64]
Groups = NDArray[np.int64]

CHUNK = 500
"""Draws at once: what bounds memory."""

INTERVAL_PERCENTILES = (2.5, 97.5)


class Estimate(NamedTuple):
    """A mean with its 95 % interval."""

    value: float
    low: float
    high: float
    n: int


class PairedDifference(NamedTuple):
    """One system minus another on the same questions."""

    difference: float
    low: float
    high: float
    p: float
    n: int
    conversations: int
    wins: int
    losses: int


class Agreement(NamedTuple):
    """How far two judges agree on the same rewrites."""

    spearman: float
    kendall: float
    mean_difference: float
    """Mean absolute difference, in points."""

    n: int


def group_numbers(names: Sequence[Any]) -> Groups:
    """Each question's conversation as a number from 0."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def bootstrap_means(columns: Columns, conversations: Groups, draws: int, seed: int) -> list[Estimate]:
    """The mean of each column, with the interval of a bootstrap over conversations."""
    sums, counts = group_sums(columns, conversations)
    means = _means(sums.sum(axis=0), counts.sum(axis=0))
    low, high = _intervals(sums, counts, draws, seed)
    return [
        Estimate(float(means[at]), float(low[at]), float(high[at]), int(counts[:, at].sum()))
        for at in range(columns.shape[1])
    ]


def paired_differences(columns: Columns, conversations: Groups, draws: int, seed: int) -> list[PairedDifference]:
    """Columns of differences, each with its interval and the p of a paired permutation test."""
    sums, counts = group_sums(columns, conversations)
    # Exchanging two systems within a conversation flips the sign of its sum.
    ps = permutation_p_values(sums, np.zeros_like(sums), lambda total: total, draws, seed)
    return [
        PairedDifference(
            *estimate[:3], ps[at] if estimate.n else math.nan, estimate.n, int((counts[:, at] > 0).sum()),
            int((columns[:, at] > 0).sum()), int((columns[:, at] < 0).sum()),
        )
        for at, estimate in enumerate(bootstrap_means(columns, conversations, draws, seed))
    ]  # fmt: skip


def group_sums(columns: Columns, conversations: Groups) -> tuple[Columns, Columns]:
    """Each conversation's sum and number of values, a column each."""
    size = int(conversations.max()) + 1 if len(conversations) else 0
    sums, counts = np.zeros((size, columns.shape[1])), np.zeros((size, columns.shape[1]))
    np.add.at(sums, conversations, np.nan_to_num(columns))
    np.add.at(counts, conversations, ~np.isnan(columns))
    return sums, counts


def _means(sums: Columns, counts: Columns) -> Columns:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(counts > 0, sums / counts, np.nan))


def _intervals(sums: Columns, counts: Columns, draws: int, seed: int) -> tuple[Columns, Columns]:
    """Percentiles of the means of drawn conversations; one conversation alone says nothing of the others."""
    low, high = bootstrap_intervals(len(sums), lambda times: _means(times @ sums, times @ counts), draws, seed)
    alone = (counts > 0).sum(axis=0) < 2
    return np.where(alone, np.nan, low), np.where(alone, np.nan, high)


def bootstrap_intervals(
    size: int, statistic: Callable[[Columns], Columns], draws: int, seed: int
) -> tuple[Columns, Columns]:
    """Percentiles of whatever is worked out from drawn groups; of one group alone there are none.

    `statistic` is given how often each of `size` groups was drawn, a row a draw, and gives a row of numbers for each.
    """
    numbers = bootstrap_sample(size, statistic, draws, seed)
    low, high = np.full(numbers.shape[1], np.nan), np.full(numbers.shape[1], np.nan)
    for at in np.flatnonzero(~np.isnan(numbers).all(axis=0)):
        low[at], high[at] = np.nanpercentile(numbers[:, at], INTERVAL_PERCENTILES)
    return low, high


def bootstrap_sample(size: int, statistic: Callable[[Columns], Columns], draws: int, seed: int) -> Columns:
    """A row of the statistic's numbers for each draw of the groups; no row where there is one group alone."""
    none = statistic(np.ones((1, size)))[:0]
    return np.concatenate([none, *(statistic(times) for times in _drawn(size, draws, seed))])


def bootstrap_estimates(
    size: int, statistic: Callable[[Columns], Columns], draws: int, seed: int
) -> list[dict[str, float]]:
    """Value, low and high of each number that `statistic` gives: of all groups, and of drawn ones."""
    values = statistic(np.ones((1, size)))[0]
    low, high = bootstrap_intervals(size, statistic, draws, seed)
    return [{"value": float(values[at]), "low": float(low[at]), "high": float(high[at])} for at in range(len(values))]


def _drawn(size: int, draws: int, seed: int) -> Iterator[Columns]:
    """How often each group is drawn, a row a draw, some draws at once."""
    rng = np.random.default_rng(seed)
    for start, stop in _chunks(draws) if size > 1 else ():
        yield rng.multinomial(size, np.full(size, 1 / size), stop - start).astype(np.float64)


def permutation_p_values(
    first: Columns, second: Columns, statistic: Callable[[Columns], Columns], draws: int, seed: int
) -> list[float]:
    """Two-sided p of `statistic` of one system's sums minus the other's: how often exchanging the two within whole
    groups, by chance alone, differs at least as much. A row of sums for each group."""
    half, whole = (first - second) / 2, (first + second).sum(axis=0) / 2
    observed = _apart(statistic, whole, half.sum(axis=0)[None, :])[0]
    extreme = np.zeros(len(observed))
    rng = np.random.default_rng([seed, 1])
    for start, stop in _chunks(draws):
        signs = rng.integers(0, 2, (stop - start, len(first))) * 2.0 - 1.0
        extreme += (_apart(statistic, whole, signs @ half) >= observed - 1e-9).sum(axis=0)
    return [float(p) for p in np.where(np.isnan(observed), np.nan, (1 + extreme) / (1 + draws))]


def _apart(statistic: Callable[[Columns], Columns], whole: Columns, half: Columns) -> Columns:
    return np.asarray(np.abs(statistic(whole + half) - statistic(whole - half)))


def _chunks(draws: int) -> Iterator[tuple[int, int]]:
    for start in range(0, draws, CHUNK):
        yield start, min(start + CHUNK, draws)


def holm(ps: Mapping[str, float]) -> dict[str, float]:
    """Holm's step-down correction: each p as if it alone had been looked at; NaN is none and is left out."""
    ps = {name: p for name, p in ps.items() if not math.isnan(p)}
    out: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(ps, key=lambda key: ps[key])):
        largest = max(largest, min(1.0, ps[name] * (len(ps) - rank)))
        out[name] = largest
    return out


def queries_needed(difference: float, discordant: float, clustering: float = 1.0, power: float = 0.8) -> int | None:
    """Paired queries that show such a difference in a share, two-sided at 5 %; None where there is none to show.

    `discordant` is the share of queries on which the two systems differ; `clustering` what alike turns cost.
    """
    size = abs(difference)
    if not size > 0 or not math.isfinite(discordant):
        return None
    discordant = max(discordant, size)
    normal = NormalDist()
    alone = normal.inv_cdf(0.975) * math.sqrt(discordant) + normal.inv_cdf(power) * math.sqrt(discordant - size**2)
    return math.ceil(alone**2 / size**2 * max(clustering, 1.0))


def mean_queries_needed(
    difference: float, deviation: float, clustering: float = 1.0, power: float = 0.8
) -> int | None:
    """Paired queries that show such a difference of means, two-sided at 5 %; None where there is none to show.

    `deviation` is the standard deviation of one query's difference.
    """
    size = abs(difference)
    if not size > 0 or not math.isfinite(deviation):
        return None
    normal = NormalDist()
    ends = normal.inv_cdf(0.975) + normal.inv_cdf(power)
    return math.ceil((ends * deviation / size) ** 2 * max(clustering, 1.0))


class Spread(NamedTuple):
    """Paired differences, as far as the number of queries hangs on them that would show a difference."""

    queries: int
    mean: float
    discordant: float
    """The share of queries on which the two systems differ."""

    deviation: float
    clustering: float
    """The factor that alike turns cost."""

    def needed(self, difference: float) -> int | None:
        """Queries like these that show such a difference in a share."""
        return queries_needed(difference, self.discordant, self.clustering)

    def needed_for_mean(self, difference: float) -> int | None:
        """Queries like these that show such a difference of means."""
        return mean_queries_needed(difference, self.deviation, self.clustering)


def spread(differences: Columns, conversations: Groups) -> Spread:
    """The spread of those differences that are known; NaN where none is."""
    measured = differences[~np.isnan(differences)]
    factor = clustering_factor(differences, conversations)
    if not len(measured):
        return Spread(0, math.nan, math.nan, math.nan, factor)
    return Spread(len(measured), float(measured.mean()), float((measured != 0).mean()), float(measured.std()), factor)


def clustering_factor(differences: Columns, conversations: Groups) -> float:
    """The variance of the mean with whole conversations over that of independent questions."""
    measured = ~np.isnan(differences)
    centred = differences[measured] - differences[measured].mean() if measured.any() else np.zeros(0)
    alone = float((centred**2).sum())
    return float((np.bincount(conversations[measured], centred) ** 2).sum()) / alone if alone > 0 else 1.0


def agreement(first: Sequence[float], second: Sequence[float]) -> Agreement:
    """Ranks and points compared; NaN where a judge gives all the same."""
    from scipy.stats import kendalltau, spearmanr

    if len(first) < 3 or len(set(first)) < 2 or len(set(second)) < 2:
        return Agreement(math.nan, math.nan, _mean_difference(first, second), len(first))
    ranks, order = spearmanr(first, second).statistic, kendalltau(first, second).statistic
    return Agreement(float(ranks), float(order), _mean_difference(first, second), len(first))


def _mean_difference(first: Sequence[float], second: Sequence[float]) -> float:
    return float(np.abs(np.subtract(first, second)).mean()) if len(first) else math.nan


def quantile(values: Sequence[float], share: float, draws: int, seed: int) -> Estimate:
    """A quantile with the interval of a bootstrap over single values: of times, say."""
    if len(values) == 0:
        return Estimate(math.nan, math.nan, math.nan, 0)
    array = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(0, len(array), (min(draws, 2_000), len(array)))
    low, high = np.percentile(np.quantile(array[picks], share, axis=1), INTERVAL_PERCENTILES)
    return Estimate(float(np.quantile(array, share)), float(low), float(high), len(array))
