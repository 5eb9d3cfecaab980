"""Is the canary worse than the stable model? One sequential test, valid however often one looks.

Each look brings a block: how many requests each model answered since the last, and how many failed a check. Two bets
are kept on the blocks, as e-values (what a stake of 1 has become):

    harm    against "the canary is no worse": above CHECKS / ALPHA the canary is taken back
    safe    against "the canary is worse by the margin or more": above 1 / BETA the check is passed

A block's bet is a likelihood ratio: what we guess from earlier blocks, over the closest that the denied claim could
come to it (its projection in Kullback-Leibler divergence). Under the denied claim such a ratio is worth at most 1 on
average, for any rates of the block, so that the product may be read at any time (Turner, Ly, Gruenwald 2024). Nothing
is assumed of the rates but that requests fail independently: they may rise and fall together between blocks.
"""

from math import log
from typing import NamedTuple

from serving.rollout.spec import CamelCaseConfig

ALPHA = 0.01
"""At most this share of canaries that are no worse is taken back by the statistics, all checks and steps together."""
BETA = 0.001
"""At most this share of canaries that are worse by the margin passes a step."""
EFFECTS = (1.0, 3.0, 9.0)
"""The harm bet on, in margins: the stake is split between small, middling and great."""
MEMORY = 0.9
"""How much an older block counts beside the next in the guess of the stable model's rate."""
MOST = 0.95
STAKE_CAP_FACTOR = 10.0
"""A stake is cut at so many times what it must reach, so that a good past hides no bad present."""


class Count(NamedTuple):
    total: float
    failed: float


class Rates(NamedTuple):
    canary: float
    stable: float


class Block(NamedTuple):
    """One check's counts of one window. `known` is the stable rate where it is no count but a fact."""

    canary: Count
    stable: Count
    known: float | None = None


class Score(CamelCaseConfig):
    """What is known of one check: this step's counts, and both bets."""

    check: str
    margin: float
    """Tolerated between the two models at this step."""
    canary: Count = Count(0, 0)
    stable: Count = Count(0, 0)
    guess: Count = Count(0, 0)
    """Recent requests of the stable model, older ones counting less."""
    harm: tuple[float, ...] = (0.0,) * len(EFFECTS)
    harm_looks: int = 0
    safe: float = 0.0
    safe_looks: int = 0
    until: float = 0.0
    """The end of the last window that said something."""

    @property
    def harm_value(self) -> float:
        return sum(self.harm) / len(self.harm) + _unspent_stake(self.harm_looks)

    @property
    def safe_value(self) -> float:
        return self.safe + _unspent_stake(self.safe_looks)


def harm_needed(checks: int) -> float:
    return checks / ALPHA


def safe_needed() -> float:
    return 1 / BETA


def reset_for_step(score: Score, margin: float) -> Score:
    """A step's counts begin anew, and the proof of safety where its margin is another; suspicion is kept."""
    fresh = {"canary": Count(0, 0), "stable": Count(0, 0), "margin": margin}
    kept = {} if margin == score.margin else {"safe": 0.0, "safe_looks": 0}
    return score.model_copy(update=fresh | kept)


def fold(score: Score, block: Block, until: float, harm_most: float) -> Score:
    """The score after one more block; the first block of all is only learned from."""
    known = score.guess.total > 0 or block.known is not None
    update: dict[str, object] = {
        "canary": _sum(score.canary, block.canary),
        "stable": _sum(score.stable, block.stable),
        "guess": _recent(score.guess, block.stable),
        "until": until,
    }
    if known:
        stable = block.known if block.known is not None else _rate(score.guess)
        update |= _harm(score, block, stable, harm_most) | _safe(score, block, stable)
    return score.model_copy(update=update)


def _harm(score: Score, block: Block, stable: float, needed: float) -> dict[str, object]:
    looks = score.harm_looks + 1
    most = needed * STAKE_CAP_FACTOR
    grown = tuple(
        _updated_stake(stake, looks, harm_bet(block, stable, effect * score.margin), most)
        for stake, effect in zip(score.harm, EFFECTS, strict=True)
    )
    return {"harm": grown, "harm_looks": looks}


def _safe(score: Score, block: Block, stable: float) -> dict[str, object]:
    looks = score.safe_looks + 1
    bet = safe_bet(block, stable, score.margin)
    return {"safe": _updated_stake(score.safe, looks, bet, safe_needed() * STAKE_CAP_FACTOR), "safe_looks": looks}


def harm_bet(block: Block, stable: float, effect: float) -> float:
    """The logarithm of a block's e-value against "no worse", betting that the canary is worse by `effect`."""
    guess = Rates(min(stable + effect, MOST), stable)
    if guess.canary <= stable:
        return 0.0
    if block.known is not None:
        return _block_log_ratio(block, guess, Rates(block.known, block.known))
    both = block.canary.total + block.stable.total
    pooled = (block.canary.total * guess.canary + block.stable.total * guess.stable) / both
    return _block_log_ratio(block, guess, Rates(pooled, pooled))


def safe_bet(block: Block, stable: float, margin: float) -> float:
    """The logarithm of a block's e-value against "worse by the margin or more", betting that it is no worse."""
    guess = Rates(stable, stable)
    if stable + margin >= 1:
        return 0.0
    if block.known is not None:
        return _block_log_ratio(block, guess, Rates(block.known + margin, block.known))
    lower = _nearest_denied_rate(block.canary.total, block.stable.total, stable, margin)
    return _block_log_ratio(block, guess, Rates(lower + margin, lower))


def _nearest_denied_rate(canary: float, stable: float, rate: float, margin: float) -> float:
    """The stable rate of the point, with the canary's `margin` above it, that is nearest to both being `rate`.

    The divergence is convex in it, so its slope has one root between `rate - margin` and `rate`: Newton's steps,
    halved where they would leave what is known to hold the root.
    """
    low, high = max(rate - margin, 0.0), rate
    at = (low + high) / 2
    for _ in range(60):
        above = at + margin
        slope = canary * (above - rate) / (above * (1 - above)) + stable * (at - rate) / (at * (1 - at))
        if slope > 0:
            high = at
        else:
            low = at
        bend = _curvature(canary, above, rate) + _curvature(stable, at, rate)
        step = at - slope / bend
        ahead = step if low < step < high else (low + high) / 2
        if abs(ahead - at) <= 1e-9 * rate:
            return ahead
        at = ahead
    return at


def _curvature(of: float, at: float, rate: float) -> float:
    return of * (rate / (at * at) + (1 - rate) / ((1 - at) * (1 - at)))


def _block_log_ratio(block: Block, guess: Rates, denied: Rates) -> float:
    stable = 0.0 if block.known is not None else _count_log_ratio(block.stable, guess.stable, denied.stable)
    return _count_log_ratio(block.canary, guess.canary, denied.canary) + stable


def _count_log_ratio(count: Count, guess: float, denied: float) -> float:
    passed = count.total - count.failed
    return count.failed * log(guess / denied) + passed * log((1 - guess) / (1 - denied))


def _updated_stake(stake: float, looks: int, bet: float, most: float) -> float:
    """The stakes so far and the one that begins now, times what this block was worth.

    A bet on each block as the first: 1/2 on the first of all, 1/6 on the second, 1/(t (t + 1)) on block t, 1 in all.
    So a model that turns bad late is found nearly as fast as one that was bad from the start.
    """
    start = 1 / (looks * (looks + 1))
    if bet > 50:
        return most
    return float(min((stake + start) * 2.718281828459045**bet, most))


def _unspent_stake(looks: int) -> float:
    return 1 / (looks + 1)


def _rate(count: Count) -> float:
    return (count.failed + 0.5) / (count.total + 1)


def _sum(left: Count, right: Count) -> Count:
    return Count(left.total + right.total, left.failed + right.failed)


def _recent(guess: Count, block: Count) -> Count:
    return Count(guess.total * MEMORY + block.total, guess.failed * MEMORY + block.failed)
