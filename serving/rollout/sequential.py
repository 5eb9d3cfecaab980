"""Is the canary worse than the stable model? A sequential test that stays valid however often its result is read.

Every reconcile brings a block: how many requests each model answered since the last one, and how many failed a check.
Two bets run on these blocks. A bet is an e-value: what a stake of 1 has become by betting on block after block.

    harm    bets against "the canary is no worse": above CHECKS / ALPHA the canary is taken back
    safe    bets against "the canary is worse by the margin or more": above 1 / BETA the check is passed

The worth of one block is a likelihood ratio: the probability of its counts under a guess made from earlier blocks,
over their probability under the rates that the denied claim allows and that come nearest to the guess (the projection
in Kullback-Leibler divergence). If the denied claim is true, the ratio is at most 1 on average, at any rates of
the block (Turner, Ly and Gruenwald 2024, "Generic E-variables for exact sequential k-sample tests").

The product of such ratios is then a supermartingale that starts at 1, and Ville's inequality holds: the probability
that it ever reaches c is at most 1/c. That is why the product may be compared with its threshold at every reconcile,
where a p-value would need a correction for each look. Rates may rise and fall together between blocks; the only
assumption is that requests fail independently.
"""

from math import exp, log
from typing import NamedTuple

from serving.rollout.spec import CamelCaseConfig

ALPHA = 0.01
"""The largest share of equal canaries that the statistics take back, over all checks and steps together."""
BETA = 0.001
"""The largest share of canaries worse by the margin that passes a step."""
EFFECTS = (1.0, 3.0, 9.0)
"""The sizes of harm that the harm bet is split over, in margins: small, middling and great."""
MEMORY = 0.9
"""Weight of an older block, relative to the next one, in the guess of the stable model's rate."""
MAX_GUESSED_RATE = 0.95
STAKE_CAP_FACTOR = 10.0
"""A stake is cut at this multiple of its threshold, so that a good past cannot hide a bad present."""
MAX_LOG_BET = 50.0
"""A block worth more than e^50 takes the stake to its cap at once; exp() would overflow for far larger ones."""


class Count(NamedTuple):
    """Requests (or shadow pairs), and how many of them failed a check."""

    total: float
    failed: float


class Rates(NamedTuple):
    canary: float
    stable: float


class Block(NamedTuple):
    """One check's counts of one window. `known` is the stable rate if it is a fact rather than a count."""

    canary: Count
    stable: Count
    known: float | None = None


class HarmPeriod(CamelCaseConfig):
    """The blocks that the present harm bet rests on: counts for the message, never for the decision."""

    since: float = 0.0
    """The end of the window before the first of these blocks; 0 without one."""
    canary: Count = Count(0, 0)
    expected: float = 0.0
    """Failures that the canary would have had at the stable model's rate of each block."""


class Score(CamelCaseConfig):
    """The evidence on one check: the counts of this step, and both bets."""

    check: str
    margin: float
    """Tolerated difference of the two models' rates at this step."""
    canary: Count = Count(0, 0)
    stable: Count = Count(0, 0)
    guess: Count = Count(0, 0)
    """Recent requests of the stable model, older ones with less weight."""
    harm: tuple[float, ...] = (0.0,) * len(EFFECTS)
    harm_looks: int = 0
    harm_period: HarmPeriod = HarmPeriod()
    safe: float = 0.0
    safe_looks: int = 0
    until: float = 0.0
    """The end of the last window that had counts for this check."""

    @property
    def harm_value(self) -> float:
        return _mean(self.harm) + _unspent_stake(self.harm_looks)

    @property
    def safe_value(self) -> float:
        return self.safe + _unspent_stake(self.safe_looks)


def harm_needed(checks: int) -> float:
    """Threshold of the harm bet. Any check can take the canary back, so ALPHA is divided among them (Bonferroni)."""
    return checks / ALPHA


def safe_needed() -> float:
    """Threshold of the safe bet. It is not divided: a bad canary must pass every check, also its worst."""
    return 1 / BETA


def reset_for_step(score: Score, margin: float) -> Score:
    """Start a step: reset its counts, and the safe bet if its margin changed. The harm bet continues."""
    fresh = {"canary": Count(0, 0), "stable": Count(0, 0), "margin": margin}
    safe_bet_reset = {} if margin == score.margin else {"safe": 0.0, "safe_looks": 0}
    return score.model_copy(update=fresh | safe_bet_reset)


def fold(score: Score, block: Block, until: float, harm_most: float) -> Score:
    """Add one block to the score. The very first block is only learned from: a bet needs a guess made before it."""
    has_guess = score.guess.total > 0 or block.known is not None
    update: dict[str, object] = {
        "canary": _add(score.canary, block.canary),
        "stable": _add(score.stable, block.stable),
        "guess": _discount(score.guess, block.stable),
        "until": until,
    }
    if has_guess:
        stable_rate = block.known if block.known is not None else _smoothed_rate(score.guess)
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
    """Add the block to the period that the harm bet rests on, or begin a new period with it.

    The stakes are a sum over all moments at which harm may have begun. Where those begun earlier are worth less, all
    together, than the stake that begins now, the past no longer carries the bet, and its counts would not explain it.
    The expected failures are taken block by block, as the bet compares: sums over a period in which both the models'
    rates and their shares of the traffic change may read the other way round (Simpson's paradox).
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
    """The logarithm of a block's e-value against "no worse", betting that the canary is worse by `effect`."""
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
    """The logarithm of a block's e-value against "worse by the margin or more", betting that it is no worse."""
    guess = Rates(stable_rate, stable_rate)
    if stable_rate + margin >= 1:
        return 0.0
    if block.known is not None:
        return _block_log_ratio(block, guess, Rates(block.known + margin, block.known))
    lower = _nearest_denied_rate(block.canary.total, block.stable.total, stable_rate, margin)
    return _block_log_ratio(block, guess, Rates(lower + margin, lower))


def _nearest_denied_rate(canary: float, stable: float, rate: float, margin: float) -> float:
    """The stable rate x of the point (x + margin, x) that is nearest to both rates being `rate`.

    It minimises canary * KL(rate, x + margin) + stable * KL(rate, x), weighted by the requests of each model. This is
    convex in x, so its slope has exactly one root, between `rate - margin` and `rate`. Newton's method finds it; a
    step that would leave the interval known to hold the root is replaced by halving that interval.
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
    """The second derivative of total * KL(rate, p) at p = `at`."""
    return total * (rate / (at * at) + (1 - rate) / ((1 - at) * (1 - at)))


def _block_log_ratio(block: Block, guess: Rates, denied: Rates) -> float:
    """log P(counts | guess) - log P(counts | denied); a stable rate that is known has no counts to add."""
    stable = 0.0 if block.known is not None else _count_log_ratio(block.stable, guess.stable, denied.stable)
    return _count_log_ratio(block.canary, guess.canary, denied.canary) + stable


def _count_log_ratio(count: Count, guess: float, denied: float) -> float:
    """The log-likelihood ratio of one model's binomial count; the binomial coefficients cancel."""
    passed = count.total - count.failed
    return count.failed * log(guess / denied) + passed * log((1 - guess) / (1 - denied))


def _next_stake(stake: float, number: int, log_bet: float, cap: float) -> float:
    """The stakes so far and the one that begins now, times the worth of this block, cut at the cap.

    The stake of 1 is split over the blocks with which harm (or safety) may begin: see `_new_stake`. So a model that
    turns bad late is found nearly as fast as one that was bad from the start.
    """
    if log_bet > MAX_LOG_BET:
        return cap
    return float(min((stake + _new_stake(number)) * exp(log_bet), cap))


def _new_stake(number: int) -> float:
    """The share of the stake that begins with block t, 1 / (t (t + 1)): 1/2, 1/6, 1/12, ... which add up to 1."""
    return 1 / (number * (number + 1))


def _unspent_stake(number: int) -> float:
    """The stake that has not begun after t blocks: 1 - (1/2 + 1/6 + ... + 1/(t (t + 1))) = 1 / (t + 1)."""
    return 1 / (number + 1)


def _smoothed_rate(count: Count) -> float:
    """Half a failure and one request are added (Jeffreys' prior): a guess of exactly 0 or 1 could not be bet on."""
    return (count.failed + 0.5) / (count.total + 1)


def _mean(stakes: tuple[float, ...]) -> float:
    return sum(stakes) / len(stakes)


def _add(left: Count, right: Count) -> Count:
    return Count(left.total + right.total, left.failed + right.failed)


def _discount(guess: Count, block: Count) -> Count:
    return Count(guess.total * MEMORY + block.total, guess.failed * MEMORY + block.failed)
