"""The bets are worth at most 1 under what they deny, whatever the rates; and they find what they are for."""

from itertools import product
from math import comb, exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.rollout.power import Scenario, falsely_passed, falsely_taken_back, needed
from serving.rollout.sequential import (
    ALPHA,
    BETA,
    Block,
    Count,
    Score,
    fold,
    harm_bet,
    harm_needed,
    reset_for_step,
    safe_bet,
    safe_needed,
)

RATE = st.floats(0.001, 0.9)
SIZE = st.integers(1, 6)


def mean(canary: tuple[int, float], stable: tuple[int, float], bet: object, known: float | None = None) -> float:
    """The exact mean of a block's e-value, over every outcome of so many requests at these rates."""
    total = 0.0
    for lost, other in product(range(canary[0] + 1), range(stable[0] + 1)):
        block = Block(Count(canary[0], lost), Count(stable[0], other), known)
        total += chance(lost, *canary) * chance(other, *stable) * exp(bet(block))  # type: ignore[operator]
    return total


def chance(failed: int, of: int, rate: float) -> float:
    return float(comb(of, failed) * rate**failed * (1 - rate) ** (of - failed))


@given(SIZE, SIZE, RATE, st.floats(0, 1), RATE, st.floats(0.005, 0.5))
def test_no_canary_that_is_no_worse_makes_the_bet_on_harm_pay(
    canary: int, stable: int, true: float, share: float, guess: float, effect: float
) -> None:
    worth = mean((canary, true * share), (stable, true), lambda block: harm_bet(block, guess, effect))

    assert worth <= 1 + 1e-9


@given(SIZE, SIZE, st.floats(0, 0.4), st.floats(0, 0.1), RATE, st.floats(0.005, 0.5))
def test_no_canary_that_is_worse_by_the_margin_makes_the_bet_on_safety_pay(
    canary: int, stable: int, true: float, more: float, guess: float, margin: float
) -> None:
    worth = mean((canary, true + margin + more), (stable, true), lambda block: safe_bet(block, guess, margin))

    assert worth <= 1 + 1e-6


@given(SIZE, st.floats(0, 0.5), st.floats(0.01, 0.4))
def test_the_bets_on_shadow_pairs_pay_under_neither_denied_claim(pairs: int, less: float, margin: float) -> None:
    even = mean((pairs, 0.5 - less), (0, 0.0), lambda block: harm_bet(block, 0.5, margin), 0.5)
    worse = mean((pairs, min(0.5 + margin + less, 1.0)), (0, 0.0), lambda block: safe_bet(block, 0.5, margin), 0.5)

    assert max(even, worse) <= 1 + 1e-9


@pytest.mark.slow
def test_looking_every_time_takes_back_no_more_good_models_than_promised() -> None:
    result = falsely_taken_back(runs=300)

    assert max(result.values()) <= ALPHA, result


@pytest.mark.slow
def test_looking_every_time_passes_no_model_that_is_worse_by_the_margin() -> None:
    result = falsely_passed(runs=300)

    assert max(result.values()) <= 3 * BETA + 1 / 300, result


@pytest.mark.parametrize(("share", "margin", "fails"), [(0.05, 0.05, 0.11), (0.5, 0.01, 0.03)])
def test_a_canary_twice_the_margin_worse_is_found_and_an_equal_one_passes(
    share: float, margin: float, fails: float
) -> None:
    harm, passed = needed(Scenario(0.01, fails, share, margin), runs=9)
    assert harm < 4000 and passed == float("inf")

    harm, passed = needed(Scenario(0.01, 0.01, share, margin), runs=9)
    assert harm == float("inf") and passed < 6000


def play(score: Score, blocks: list[Block]) -> Score:
    for at, block in enumerate(blocks):
        score = fold(score, block, float(at), harm_needed(5))
    return score


FINE, BAD = Block(Count(300, 3), Count(300, 3)), Block(Count(300, 30), Count(300, 3))


def test_a_good_past_hides_no_bad_present() -> None:
    score = play(Score(check="errors", margin=0.01), [FINE] * 200)
    assert score.safe_value >= safe_needed()

    late = play(score, [BAD] * 4)

    assert late.harm_value >= harm_needed(5) and late.safe_value < safe_needed()


def test_a_storm_over_both_models_is_no_harm_of_the_canary() -> None:
    storm = Block(Count(300, 90), Count(300, 90))

    score = play(Score(check="errors", margin=0.01), [FINE] * 10 + [storm] * 6 + [FINE] * 40)

    assert score.harm_value < 1 and score.safe_value >= safe_needed()


def test_the_first_block_is_only_learned_from() -> None:
    score = play(Score(check="errors", margin=0.01), [BAD])

    assert score.harm_value == score.safe_value == 1.0 and score.guess == BAD.stable


def test_a_new_step_must_be_proven_safe_anew_and_keeps_what_is_suspected() -> None:
    score = play(Score(check="errors", margin=0.02), [FINE, BAD, FINE])

    ahead = reset_for_step(score, 0.01)

    assert ahead.canary.total == 0 and ahead.safe_value == 1.0 and ahead.harm == score.harm


def test_no_rate_breaks_the_bets() -> None:
    for stable, canary in ((0, 0), (300, 300), (0, 300), (300, 0)):
        block = Block(Count(300, canary), Count(300, stable))
        score = play(Score(check="errors", margin=0.5), [block] * 50)
        assert 0 <= score.harm_value < 1e5 and 0 <= score.safe_value < 1e5
