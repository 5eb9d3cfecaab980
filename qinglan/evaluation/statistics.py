"""Statistics for comparing systems on the same questions: pure functions of numbers and a seed.

Turns of one conversation resemble each other, so they are not independent. Therefore bootstraps draw whole
conversations with replacement (the cluster bootstrap), and permutation tests exchange the systems in whole
conversations. A column holds one number for each question, or NaN if a question has no value, for example if it has
no gold passage, was not examined or is of another tenant.

A statistic that is not a mean, such as F1, is passed as a function of sums: `bootstrap_estimates` and
`permutation_p_values` take that function and each group's sums. A group is a conversation, or a set of near-duplicate
texts.
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
"""Number of bootstrap or permutation draws that are computed at once, to limit memory."""

INTERVAL_PERCENTILES = (2.5, 97.5)


class Estimate(NamedTuple):
    """Mean (or other statistic) with its 95 % interval."""

    value: float
    low: float
    high: float
    n: int


class PairedDifference(NamedTuple):
    """Mean difference between two systems on the same questions, with its interval and p value."""

    difference: float
    low: float
    high: float
    p: float
    n: int
    conversations: int
    wins: int
    losses: int


class Agreement(NamedTuple):
    """Agreement between two judges' scores of the same rewrites."""

    spearman: float
    kendall: float
    mean_difference: float
    """Mean absolute difference between the two scores, in points of the judges' scale."""

    n: int


def group_numbers(names: Sequence[Any]) -> Groups:
    """Number the groups from 0, and return the number of each name's group; equal names are one group."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def bootstrap_means(columns: Columns, conversations: Groups, draws: int, seed: int) -> list[Estimate]:
    """Return the mean of each column, with its interval from a bootstrap over conversations."""
    sums, counts = group_sums(columns, conversations)
    known = counts.sum(axis=0)
    # A draw's sum is each conversation's sum times how often it was drawn, so a batch of draws is one matrix product.
    ends = bootstrap_intervals(len(sums), lambda times: _means(times @ sums, times @ counts), draws, seed)
    # Fewer than two conversations with a value show no variance.
    low, high = (np.where((counts > 0).sum(axis=0) < 2, np.nan, end) for end in ends)
    rows = zip(_means(sums.sum(axis=0), known), low, high, known, strict=True)
    return [Estimate(float(value), float(least), float(most), int(n)) for value, least, most, n in rows]


def paired_differences(columns: Columns, conversations: Groups, draws: int, seed: int) -> list[PairedDifference]:
    """Return the mean of each column of differences, with its interval and the p of a paired permutation test."""
    sums, counts = group_sums(columns, conversations)
    # Exchanging two systems within a conversation flips the sign of its sum.
    ps = permutation_p_values(sums, np.zeros_like(sums), lambda total: total, draws, seed)
    return [
        PairedDifference(
            *estimate[:3],
            p=ps[column] if estimate.n else math.nan,
            n=estimate.n,
            conversations=int((counts[:, column] > 0).sum()),
            wins=int((columns[:, column] > 0).sum()),
            losses=int((columns[:, column] < 0).sum()),
        )
        for column, estimate in enumerate(bootstrap_means(columns, conversations, draws, seed))
    ]


def group_sums(columns: Columns, conversations: Groups) -> tuple[Columns, Columns]:
    """Return the sums and the counts of the known values, as two tables with one row for each conversation."""
    size = int(conversations.max()) + 1 if len(conversations) else 0
    sums, counts = np.zeros((size, columns.shape[1])), np.zeros((size, columns.shape[1]))
    np.add.at(sums, conversations, np.nan_to_num(columns))
    np.add.at(counts, conversations, ~np.isnan(columns))
    return sums, counts


def _means(sums: Columns, counts: Columns) -> Columns:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(counts > 0, sums / counts, np.nan))


def bootstrap_intervals(
    size: int, statistic: Callable[[Columns], Columns], draws: int, seed: int
) -> tuple[Columns, Columns]:
    """Return the 95 % percentile interval (Efron 1979) of a statistic over draws of the groups; NaN for one group.

    `statistic` takes a matrix with a row for each draw; the row holds how often each of the `size` groups was drawn.
    It returns a row of numbers for each draw.
    """
    numbers = bootstrap_sample(size, statistic, draws, seed)
    low, high = np.full(numbers.shape[1], np.nan), np.full(numbers.shape[1], np.nan)
    if not len(numbers):
        return low, high
    unknown = np.isnan(numbers)
    whole = ~unknown.any(axis=0)  # columns without NaN share one call, which takes a third of the time
    low[whole], high[whole] = np.percentile(numbers[:, whole], INTERVAL_PERCENTILES, axis=0)
    for column in np.flatnonzero(~whole & ~unknown.all(axis=0)):
        low[column], high[column] = np.nanpercentile(numbers[:, column], INTERVAL_PERCENTILES)
    return low, high


def bootstrap_sample(size: int, statistic: Callable[[Columns], Columns], draws: int, seed: int) -> Columns:
    """Return a row of the statistic's numbers for each draw of the groups; no rows if there is only one group."""
    no_rows = statistic(np.ones((1, size)))[:0]  # has the right number of columns
    return np.concatenate([no_rows, *(statistic(times) for times in _draw_counts(size, draws, seed))])


def bootstrap_estimates(
    size: int, statistic: Callable[[Columns], Columns], draws: int, seed: int
) -> list[dict[str, float]]:
    """Return each number of a statistic over all groups, with its interval from the bootstrap's percentiles."""
    values = statistic(np.ones((1, size)))[0]
    low, high = bootstrap_intervals(size, statistic, draws, seed)
    rows = zip(values, low, high, strict=True)
    return [{"value": float(value), "low": float(least), "high": float(most)} for value, least, most in rows]


def _draw_counts(size: int, draws: int, seed: int) -> Iterator[Columns]:
    """Yield matrices with a row for each draw, which holds how often each group is drawn; at most CHUNK rows each."""
    # Drawing `size` groups with replacement and counting them is one multinomial draw.
    rng = np.random.default_rng(seed)
    for count in _chunks(draws) if size > 1 else ():
        yield rng.multinomial(size, np.full(size, 1 / size), count).astype(np.float64)


def permutation_p_values(
    first: Columns, second: Columns, statistic: Callable[[Columns], Columns], draws: int, seed: int
) -> list[float]:
    """Return the two-sided p of the difference in `statistic` between two systems, by a permutation test over groups.

    `first` and `second` hold a row of sums for each group. If the systems are equally good, exchanging them within a
    group changes nothing on average. So p is the share of random exchanges with at least the observed difference.
    """
    # With half = (first - second) / 2 and whole = (first + second) / 2, the systems' totals are whole + half and
    # whole - half, and exchanging them within a group is flipping the sign of that group's row of `half`.
    half, whole = (first - second) / 2, (first + second).sum(axis=0) / 2

    def difference(half_sums: Columns) -> Columns:
        return np.asarray(np.abs(statistic(whole + half_sums) - statistic(whole - half_sums)))

    observed = difference(half.sum(axis=0)[None, :])[0]
    extreme = np.zeros(len(observed))
    rng = np.random.default_rng([seed, 1])
    for count in _chunks(draws):
        signs = rng.integers(0, 2, (count, len(first))) * 2.0 - 1.0
        # The tolerance counts differences as equal that differ only by rounding.
        extreme += (difference(signs @ half) >= observed - 1e-9).sum(axis=0)
    # The observed data count as one of the exchanges, so p is never 0 (Phipson and Smyth 2010).
    return [float(p) for p in np.where(np.isnan(observed), np.nan, (1 + extreme) / (1 + draws))]


def _chunks(draws: int) -> Iterator[int]:
    return (min(CHUNK, draws - start) for start in range(0, draws, CHUNK))


def holm(ps: Mapping[str, float]) -> dict[str, float]:
    """Adjust the p values of several tests by Holm's step-down correction (1979); tests with NaN are left out."""
    # The smallest of m values is multiplied by m, the next by m - 1, and so on; none may fall below one before it.
    ps = {name: p for name, p in ps.items() if not math.isnan(p)}
    adjusted: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(ps, key=lambda key: ps[key])):
        largest = max(largest, min(1.0, ps[name] * (len(ps) - rank)))
        adjusted[name] = largest
    return adjusted


def queries_needed(difference: float, discordant: float, clustering: float = 1.0, power: float = 0.8) -> int | None:
    """Return how many paired queries show a difference of shares, two-sided at 5 %; None if it is 0 or unknown.

    `discordant` is the share of queries on which the systems differ. `clustering` is the factor for dependent turns
    (`clustering_factor`).
    """
    # Connor (1987) for McNemar's test: (z_a sqrt(d) + z_b sqrt(d - D^2))^2 / D^2 with d discordant, D the difference.
    size = abs(difference)
    if not size > 0 or not math.isfinite(discordant):
        return None
    discordant = max(discordant, size)
    normal = NormalDist()
    root = normal.inv_cdf(0.975) * math.sqrt(discordant) + normal.inv_cdf(power) * math.sqrt(discordant - size**2)
    return math.ceil(root**2 / size**2 * max(clustering, 1.0))


def mean_queries_needed(
    difference: float, deviation: float, clustering: float = 1.0, power: float = 0.8
) -> int | None:
    """Return how many paired queries show a difference of means, two-sided at 5 %; None if it is 0 or unknown.

    `deviation` is the standard deviation of one query's difference. With the difference D, the formula is
    ((z_a + z_b) deviation / D)^2.
    """
    size = abs(difference)
    if not size > 0 or not math.isfinite(deviation):
        return None
    normal = NormalDist()
    quantiles = normal.inv_cdf(0.975) + normal.inv_cdf(power)
    return math.ceil((quantiles * deviation / size) ** 2 * max(clustering, 1.0))


class Spread(NamedTuple):
    """Figures of paired differences, from which the number of queries needed to show a difference is computed."""

    queries: int
    mean: float
    discordant: float
    """Share of queries on which the two systems differ."""

    deviation: float
    clustering: float
    """Factor by which dependent turns raise the number of queries that are needed."""

    def needed(self, difference: float) -> int | None:
        """Return the number of such queries that are needed to show a difference of shares."""
        return queries_needed(difference, self.discordant, self.clustering)

    def needed_for_mean(self, difference: float) -> int | None:
        """Return the number of such queries that are needed to show a difference of means."""
        return mean_queries_needed(difference, self.deviation, self.clustering)


def spread(differences: Columns, conversations: Groups) -> Spread:
    """Measure the spread of the known differences; its figures are NaN if no difference is known."""
    measured = differences[~np.isnan(differences)]
    if not len(measured):
        return Spread(0, math.nan, math.nan, math.nan, 1.0)
    mean, discordant, deviation = (
        float(value) for value in (measured.mean(), (measured != 0).mean(), measured.std())
    )
    return Spread(len(measured), mean, discordant, deviation, clustering_factor(differences, conversations))


def clustering_factor(differences: Columns, conversations: Groups) -> float:
    """Return the design effect (Kish 1965): the variance of the mean with conversations as units, divided by its
    variance with questions as units."""
    measured = ~np.isnan(differences)
    centred = differences[measured] - differences[measured].mean()
    by_question = float((centred**2).sum())
    by_conversation = float((np.bincount(conversations[measured], centred) ** 2).sum())
    return by_conversation / by_question if by_question > 0 else 1.0


def agreement(first: Sequence[float], second: Sequence[float]) -> Agreement:
    """Compare two judges' scores by rank (Spearman's rho, Kendall's tau-b) and by points. The rank correlations are
    NaN for fewer than three scores, or if a judge gives all rewrites the same score."""
    from scipy.stats import kendalltau, spearmanr

    apart = float(np.abs(np.subtract(first, second)).mean()) if len(first) else math.nan
    if len(first) < 3 or len(set(first)) < 2 or len(set(second)) < 2:
        return Agreement(math.nan, math.nan, apart, len(first))
    ranks, order = spearmanr(first, second).statistic, kendalltau(first, second).statistic
    return Agreement(float(ranks), float(order), apart, len(first))


def quantile(values: Sequence[float], share: float, draws: int, seed: int) -> Estimate:
    """Return a quantile of independent values, such as latencies, with its interval from a bootstrap over values."""
    if len(values) == 0:
        return Estimate(math.nan, math.nan, math.nan, 0)
    array = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(0, len(array), (min(draws, 2_000), len(array)))
    low, high = np.percentile(np.quantile(array[picks], share, axis=1), INTERVAL_PERCENTILES)
    return Estimate(float(np.quantile(array, share)), float(low), float(high), len(array))
