"""The mathematics: checked by hand tables, by simulation, and by the plan's own power table."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qinglan.evaluation.statistics import (
    Columns,
    agreement,
    bootstrap_intervals,
    bootstrap_means,
    bootstrap_sample,
    clustering_factor,
    group_numbers,
    holm,
    mean_queries_needed,
    paired_differences,
    permutation_p_values,
    quantile,
    queries_needed,
)

NAN = math.nan


@pytest.mark.parametrize(("discordant", "queries"), [(0.05, 434), (0.10, 870), (0.15, 1306), (0.20, 1742)])
def test_the_power_formula_gives_the_known_table_for_85_to_88_percent(discordant: float, queries: int) -> None:
    assert queries_needed(0.03, discordant) == pytest.approx(queries, abs=1)


def test_no_difference_needs_no_number_of_queries_and_clustering_costs() -> None:
    assert queries_needed(0.0, 0.1) is None
    assert queries_needed(NAN, 0.1) is None
    alone, clustered = queries_needed(0.03, 0.1), queries_needed(0.03, 0.1, clustering=1.46)
    assert alone is not None and clustered is not None
    assert clustered == pytest.approx(1.46 * alone, abs=2)


def test_a_difference_of_means_needs_the_textbooks_number_of_pairs() -> None:
    # (1.960 + .842)^2 = 7.85: half a deviation takes 31.4 pairs
    assert mean_queries_needed(0.5, 1.0) == 32
    assert mean_queries_needed(-0.05, 0.1, clustering=2.0) == 63
    assert mean_queries_needed(0.0, 1.0) is None
    assert mean_queries_needed(0.5, NAN) is None


def test_an_interval_holds_95_percent_of_the_known_draws_beside_a_column_with_unknown_ones() -> None:
    values = np.array([0.1, 0.5, 0.2, 0.9, 0.4, 0.7])

    def statistic(times: Columns) -> Columns:
        means = times @ values / times.sum(axis=1)
        return np.column_stack([means, np.where(times[:, 0] > 0, means, NAN), np.full(len(times), NAN)])

    low, high = bootstrap_intervals(6, statistic, 500, seed=1)

    sample = bootstrap_sample(6, statistic, 500, seed=1)
    assert 100 < np.isnan(sample[:, 1]).sum() < 400
    expected = [np.percentile(column[~np.isnan(column)], (2.5, 97.5)) for column in sample[:, :2].T]
    assert list(zip(low[:2], high[:2], strict=True)) == [tuple(pair) for pair in expected]
    assert math.isnan(low[2]) and math.isnan(high[2])


def test_holm_by_hand() -> None:
    # .01 x 4, then .02 x 3, then .03 x 2 which may not fall below .06, then .4
    assert holm({"c": 0.03, "a": 0.01, "d": 0.4, "b": 0.02}) == pytest.approx(
        {"a": 0.04, "b": 0.06, "c": 0.06, "d": 0.4}
    )


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1), max_size=8))
def test_holm_never_makes_a_p_smaller_and_keeps_their_order(ps: dict[str, float]) -> None:
    adjusted = holm(ps)

    assert all(ps[name] <= adjusted[name] <= 1 for name in ps)
    order = sorted(ps, key=lambda name: ps[name])
    assert [adjusted[name] for name in order] == sorted(adjusted.values())


def conversations(rng: np.random.Generator, level: float, size: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Turns of one conversation share an effect, as in real ones."""
    turns = rng.integers(1, 5, size)
    effects = rng.normal(level, 0.3, size)
    names = np.repeat(np.arange(size), turns)
    return effects[names] + rng.normal(0, 0.3, len(names)), names


@pytest.mark.slow
def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for trial in range(200):
        values, names = conversations(rng, 0.2)
        [result] = bootstrap_means(values[:, None], names, 400, trial)
        covered += result.low <= 0.2 <= result.high

    assert 0.89 <= covered / 200 <= 0.985


@pytest.mark.slow
def test_p_is_uniform_when_nothing_differs() -> None:
    rng = np.random.default_rng(11)
    ps = []
    for trial in range(300):
        values, names = conversations(rng, 0.0)
        ps.append(paired_differences(values[:, None], names, 300, trial)[0].p)

    assert 0.4 < float(np.mean(ps)) < 0.6
    assert 0.02 <= float(np.mean(np.array(ps) < 0.05)) <= 0.09


def test_a_real_difference_has_a_small_p_and_an_interval_above_zero() -> None:
    values, names = conversations(np.random.default_rng(3), 0.4)
    [result] = paired_differences(values[:, None], names, 2_000, 0)

    assert result.p == pytest.approx(1 / 2_001), "none of the draws differs as much, and p is not 0"
    assert 0 < result.low < result.difference < result.high
    assert (result.conversations, result.n, result.wins + result.losses) == (60, len(values), len(values))


def test_alike_turns_make_the_interval_wider() -> None:
    values = np.repeat(np.random.default_rng(5).normal(0, 1, 50), 4)
    together, apart = np.repeat(np.arange(50), 4), np.arange(200)
    wide, narrow = (bootstrap_means(values[:, None], names, 1_000, 0)[0] for names in (together, apart))

    assert wide.high - wide.low > 1.6 * (narrow.high - narrow.low)
    assert clustering_factor(values, together) == pytest.approx(4.0)
    assert clustering_factor(values, apart) == pytest.approx(1.0)


def test_unknown_values_are_left_out_of_mean_and_count() -> None:
    column = np.array([[1.0], [NAN], [0.0], [NAN]])
    [result] = bootstrap_means(column, np.array([0, 0, 1, 2]), 200, 0)

    assert (result.value, result.n) == (0.5, 2)
    [nothing] = bootstrap_means(np.full((4, 1), NAN), np.array([0, 0, 1, 2]), 200, 0)
    assert math.isnan(nothing.value) and math.isnan(nothing.low) and nothing.n == 0


def test_turns_of_a_conversation_are_one_group_wherever_they_stand() -> None:
    assert group_numbers(["a", "b", "a", "c", "b"]).tolist() == [0, 1, 0, 2, 1]


@pytest.mark.parametrize("unknown", [0, 2])
def test_a_single_conversation_has_no_interval_and_no_significance(unknown: int) -> None:
    values, names = np.array([1.0] * 5 + [NAN] * unknown), np.array([0] * 5 + [1] * unknown)
    [result] = paired_differences(values[:, None], names, 200, 0)

    assert result.difference == 1.0
    assert math.isnan(result.low) and math.isnan(result.high)
    assert result.p == 1.0


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from([-1.0, 0.0, 1.0, NAN])), min_size=1, max_size=30))
def test_an_interval_holds_its_value_and_the_opposite_comparison_mirrors_it(rows: list[tuple[int, float]]) -> None:
    names, values = group_numbers([name for name, _ in rows]), np.array([[value] for _, value in rows])
    [estimate], [mirrored] = paired_differences(values, names, 100, 0), paired_differences(-values, names, 100, 0)

    if estimate.n == 0:
        assert math.isnan(estimate.difference) and math.isnan(estimate.p)
        return
    assert estimate.difference == pytest.approx(-mirrored.difference)
    assert (estimate.p, estimate.wins, estimate.losses) == (mirrored.p, mirrored.losses, mirrored.wins)
    if not math.isnan(estimate.low):
        assert estimate.low <= estimate.high
        assert estimate.low == pytest.approx(-mirrored.high)


def test_the_same_seed_gives_the_same_interval() -> None:
    values, names = conversations(np.random.default_rng(1), 0.1)

    assert paired_differences(values[:, None], names, 700, 3) == paired_differences(values[:, None], names, 700, 3)
    assert paired_differences(values[:, None], names, 700, 3) != paired_differences(values[:, None], names, 700, 4)


def test_agreement_is_of_ranks_and_of_points() -> None:
    same = agreement([1, 2, 3, 5], [2, 3, 4, 5])
    opposite = agreement([1, 2, 3, 4], [4, 3, 2, 1])

    assert (same.spearman, same.kendall, same.mean_difference) == pytest.approx((1.0, 1.0, 0.75))
    assert (opposite.spearman, opposite.kendall) == pytest.approx((-1.0, -1.0))
    assert math.isnan(agreement([3, 3, 3], [1, 2, 3]).spearman)
    assert math.isnan(agreement([], []).mean_difference)


def test_a_quantile_has_an_interval_around_it() -> None:
    result = quantile([float(x) for x in range(101)], 0.5, 500, 0)

    assert result.value == 50
    assert result.low < 50 < result.high
    assert math.isnan(quantile([], 0.5, 500, 0).value)


@pytest.mark.parametrize("size", [0, 1])
def test_a_single_group_has_no_bootstrap_interval(size: int) -> None:
    low, high = bootstrap_intervals(size, lambda times: np.ones((len(times), 2)), 50, 0)

    assert np.isnan(low).tolist() == np.isnan(high).tolist() == [True, True]


def test_exchanging_systems_is_flipping_signs_when_the_statistic_is_a_sum() -> None:
    values, names = conversations(np.random.default_rng(4), 0.05)
    sums = np.bincount(names, values).astype(np.float64)[:, None]

    [p] = permutation_p_values(sums, np.zeros_like(sums), lambda total: total, 2_000, 3)

    assert p == pytest.approx(paired_differences(values[:, None], names, 2_000, 3)[0].p)
    assert permutation_p_values(sums, sums, lambda total: total, 100, 0) == [1.0]
    assert math.isnan(permutation_p_values(sums, sums, lambda total: total * NAN, 100, 0)[0])
