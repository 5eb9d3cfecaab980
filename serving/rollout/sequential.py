"""Test if the canary is worse than the stable model. The sequential test stays valid however often it is evaluated.

Every reconcile adds a block: the number of requests that each model answered since the last block, and the number of
requests that failed a check. Two bets run on these blocks. A bet is an e-value: the value that a stake of 1 has
reached by betting on block after block.

    harm    bets against the hypothesis "the canary is no worse"; above CHECKS / ALPHA the canary is rolled back
    safe    bets against the hypothesis "the canary is worse by the margin or more"; above 1 / BETA the check passes

Each block multiplies a bet by a likelihood ratio. Its numerator is the probability of the block's counts under a
guess that was made from earlier blocks. Its denominator is their probability under the rates that the hypothesis
allows and that are nearest to the guess (the projection in Kullback-Leibler divergence). If the hypothesis is true,
the ratio is at most 1 on average, at any rates of the block (Turner, Ly and Gruenwald 2024, "Generic E-variables for
exact sequential k-sample tests").

So the product of the ratios is a supermartingale that starts at 1, and Ville's inequality holds: the probability that
it ever reaches c is at most 1/c. Therefore the product may be compared with its threshold at every reconcile, while a
p-value would need a correction for each evaluation. Rates may rise and fall together between blocks. The only
assumption is that requests fail independently.
"""

from math import exp, log
from typing import NamedTuple

from serving.rollout.spec import CamelCaseConfig

ALPHA = 0.01
"""Largest probability of rolling back a canary that is no worse, over all checks and steps together."""
BETA = 0.001
"""Largest probability that a canary that is worse by the margin passes a step."""
EFFECTS = (1.0, 3.0, 9.0)
"""Sizes of harm, as multiples of the margin, over which the harm bet is split: small, medium and large."""
MEMORY = 0.9
"""Weight of an older block, relative to the next one, in the guess of the stable model's rate."""
MAX_GUESSED_RATE = 0.95
STAKE_CAP_FACTOR = 10.0
"""Cap of a stake as a multiple of its threshold, so that good results of the past cannot hide bad results of now."""
MAX_LOG_BET = 50.0
"""Logarithm of a block's ratio above which the stake is set to its cap, because exp() could overflow."""


class Count(NamedTuple):
    """Number of requests (or shadow pairs), and number of them that failed a check."""

    total: float
    failed: float


class Rates(NamedTuple):
    canary: float
    stable: float


class Block(NamedTuple):
    """One check's counts in one window. `known` is the stable model's rate if it is known instead of counted."""

    canary: Count
    stable: Count
    known: float | None = None


class HarmPeriod(CamelCaseConfig):
    """Counts of the blocks on which the current harm bet is based. They are used in messages, never for decisions."""

    since: float = 0.0
    """End of the window before the first of these blocks; 0 if there is none."""
    canary: Count = Count(0, 0)
    expected: float = 0.0
    """Number of failures that the canary would have had at the stable model's rate in each block."""


class Score(CamelCaseConfig):
    """Evidence on one check: counts of this step, and both bets."""

    check: str
    margin: float
    """Tolerated difference of the two models' rates at this step."""
    canary: Count = Count(0, 0)
    stable: Count = Count(0, 0)
    guess: Count = Count(0, 0)
    """Recent requests of the stable model; older requests have less weight."""
    harm: tuple[float, ...] = (0.0,) * len(EFFECTS)
    harm_looks: int = 0
    harm_period: HarmPeriod = HarmPeriod()
    safe: float = 0.0
    safe_looks: int = 0
    until: float = 0.0
    """End of the last window that had counts for this check."""

    @property
    def harm_value(self) -> float:
        return _mean(self.harm) + _unspent_stake(self.harm_looks)

    @property
    def safe_value(self) -> float:
        return self.safe + _unspent_stake(self.safe_looks)


def harm_needed(checks: int) -> float:
    """Threshold of the harm bet. Each check can roll the canary back, so ALPHA is divided among them (Bonferroni)."""
    return checks / ALPHA


def safe_needed() -> float:
    """Threshold of the safe bet. BETA is not divided, because a bad canary must pass every check, even the worst."""
    return 1 / BETA


def reset_for_step(score: Score, margin: float) -> Score:
    """Reset the counts for a new step, and the safe bet if the margin changed. The harm bet continues."""
    fresh = {"canary": Count(0, 0), "stable": Count(0, 0), "margin": margin}
    safe_bet_reset = {} if margin == score.margin else {"safe": 0.0, "safe_looks": 0}
    return score.model_copy(update=fresh | safe_bet_reset)


def fold(score: Score, block: Block, until: float, harm_most: float) -> Score:
    """Add one block to the score. The first block only gives a guess, because a bet needs a guess made before it."""
    has_guess = score.guess.total > 0 or block.known is not None
    update: dict[str, object] = {
        "canary": _add(score.canary, block.canary),
        "stable": _add(score.stable, block.stable),
        "guess": _add(Count(score.guess.total * MEMORY, score.guess.failed * MEMORY), block.stable),
        "until": until,
    }
    if has_guess:
        # Half a failure and one request are added (Jeffreys' prior), so that the rate is never 0 or 1.
        smoothed = (score.guess.failed + 0.5) / (score.guess.total + 1)
        stable_rate = smoothed if block.known is None else block.known
        update |= _fold_harm(score, block, stable_rate, harm_most) | _fold_safe(score, block, stable_rate)
    return score.model_copy(update=update)


def _fold_harm(score: Score, block: Block, stable_rate: float, needed: float) -> dict[str, object]:
    number = score.harm_looks + 1
    cap = needed * STAKE_CAP_FACTOR
    stakes = tuple(
        _next_stake(stake, number, harm_bet(block, stable_rate, effect * score.margin), cap)
        for stake, effect in zip(score.harm, EFFECTS, strict=True)
    )
    return {"harm": stakes, "harm_looks": number, "harm_period": _next_harm_period(score, block)}


def _next_harm_period(score: Score, block: Block) -> HarmPeriod:
    """Add the block to the period on which the harm bet is based, or begin a new period with it.

    The stakes are a sum over all moments at which harm may have begun. If the earlier stakes together are worth less
    than the stake that begins now, the bet no longer depends on the past, and a new period begins. The expected
    failures are summed block by block, as the bet compares them. Sums over a period in which the models' rates and
    their shares of the traffic change could suggest the opposite (Simpson's paradox).
    """
    if _mean(score.harm) <= _new_stake(score.harm_looks + 1):
        period = HarmPeriod(since=score.until)
    else:
        period = score.harm_period
    stable_rate = block.stable.failed / block.stable.total if block.known is None else block.known
    return HarmPeriod(
        since=period.since,
        canary=_add(period.canary, block.canary),
        expected=period.expected + block.canary.total * stable_rate,
    )


def _fold_safe(score: Score, block: Block, stable_rate: float) -> dict[str, object]:
    number = score.safe_looks + 1
    log_bet = safe_bet(block, stable_rate, score.margin)
    return {"safe": _next_stake(score.safe, number, log_bet, safe_needed() * STAKE_CAP_FACTOR), "safe_looks": number}


def harm_bet(block: Block, stable_rate: float, effect: float) -> float:
    """Compute the log of a block's e-value against "no worse", for a bet that the canary is worse by `effect`."""
    guess = Rates(min(stable_rate + effect, MAX_GUESSED_RATE), stable_rate)
    if guess.canary <= stable_rate:
        return 0.0  # the stable model fails so often that nothing can be bet on worse
    if block.known is not None:
        return _block_log_ratio(block, guess, Rates(block.known, block.known))
    # Of all rates with canary <= stable, the nearest to the guess has both equal: the mean, weighted by requests.
    both = block.canary.total + block.stable.total
    pooled = (block.canary.total * guess.canary + block.stable.total * guess.stable) / both
    return _block_log_ratio(block, guess, Rates(pooled, pooled))


def safe_bet(block: Block, stable_rate: float, margin: float) -> float:
    """Compute the log of a block's e-value against "worse by the margin or more", for a bet that it is no worse."""
    guess = Rates(stable_rate, stable_rate)
    if stable_rate + margin >= 1:
        return 0.0
    if block.known is not None:
        return _block_log_ratio(block, guess, Rates(block.known + margin, block.known))
    lower = _nearest_denied_rate(block.canary.total, block.stable.total, stable_rate, margin)
    return _block_log_ratio(block, guess, Rates(lower + margin, lower))


def _nearest_denied_rate(canary: float, stable: float, rate: float, margin: float) -> float:
    """Find the stable rate x for which the rates (x + margin, x) are nearest to the guess (rate, rate).

    x minimises canary * KL(rate, x + margin) + stable * KL(rate, x), weighted by the requests of each model. This is
    convex in x, so its slope has exactly one root, between `rate - margin` and `rate`. Newton's method finds it. If a
    step would leave the interval that contains the root, the interval is halved instead.
    """
    low, high = max(rate - margin, 0.0), rate
    at = (low + high) / 2
    for _ in range(60):
        above = at + margin
        # d/dp KL(rate, p) = (p - rate) / (p (1 - p))
        slope = canary * (above - rate) / (above * (1 - above)) + stable * (at - rate) / (at * (1 - at))
        if slope > 0:
            high = at
        else:
            low = at
        curvature = _curvature(canary, above, rate) + _curvature(stable, at, rate)
        step = at - slope / curvature
        ahead = step if low < step < high else (low + high) / 2
        if abs(ahead - at) <= 1e-9 * rate:
            return ahead
        at = ahead
    return at


def _curvature(total: float, at: float, rate: float) -> float:
    """Second derivative of total * KL(rate, p) at p = `at`."""
    return total * (rate / (at * at) + (1 - rate) / ((1 - at) * (1 - at)))


def _block_log_ratio(block: Block, guess: Rates, denied: Rates) -> float:
    """Compute log P(counts | guess) - log P(counts | denied). If the stable rate is known, only the canary counts."""
    stable = 0.0 if block.known is not None else _count_log_ratio(block.stable, guess.stable, denied.stable)
    return _count_log_ratio(block.canary, guess.canary, denied.canary) + stable


def _count_log_ratio(count: Count, guess: float, denied: float) -> float:
    """Log-likelihood ratio of one model's binomial count; the binomial coefficients cancel out."""
    passed = count.total - count.failed
    return count.failed * log(guess / denied) + passed * log((1 - guess) / (1 - denied))


def _next_stake(stake: float, number: int, log_bet: float, cap: float) -> float:
    """Multiply the old stakes and the stake that begins now by the block's ratio; the result is cut at the cap.

    The stake of 1 is split over all blocks at which harm (or safety) may begin (see `_new_stake`). So a model that
    becomes bad late is detected nearly as fast as a model that was bad from the start.
    """
    if log_bet > MAX_LOG_BET:
        return cap
    return float(min((stake + _new_stake(number)) * exp(log_bet), cap))


def _new_stake(number: int) -> float:
    """Share of the stake that begins with block t: 1 / (t (t + 1)), so 1/2, 1/6, 1/12, ..., which add up to 1."""
    return 1 / (number * (number + 1))


def _unspent_stake(number: int) -> float:
    """Share of the stake that has not begun after t blocks: 1 - (1/2 + 1/6 + ... + 1/(t (t + 1))) = 1 / (t + 1)."""
    return 1 / (number + 1)


def _mean(stakes: tuple[float, ...]) -> float:
    return sum(stakes) / len(stakes)


def _add(left: Count, right: Count) -> Count:
    return Count(left.total + right.total, left.failed + right.failed)
