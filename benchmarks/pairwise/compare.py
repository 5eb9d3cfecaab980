"""How well contenders stand in for the judge on held-out prompts, with intervals over conversations."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.pairwise.decisions import SEED, Decisions, Rolled
from components.evaluation.rewriter.statistics import ENDS, Estimate, estimates, groups

DRAWS = 2_000
SAME = 1e-9

Scorer = Callable[[str, str], float]
"""What a contender gives a prompt's text."""


class Said(NamedTuple):
    """What one contender makes of the held-out prompts."""

    right: list[float]
    """By pair: 1 ordered as the judge orders it, .5 held for equal, 0 the other way."""

    predicted: list[float]
    """By rollout: the judge's score of the student's text minus the teacher's."""

    in_time: list[float]
    """The same by what had been learned when the rollout was rewarded; empty of what is fitted once, at the end."""


class HeldOut(NamedTuple):
    """The held-out prompts of one or more runs."""

    pairs: list[str]
    """The conversation of each."""

    rollouts: list[str]
    truth: list[float]
    """By rollout: what the judge really said of the difference."""

    said: dict[str, Said]
    seconds: dict[str, float]
    """CPU time of each, to fit and to ask."""


class Standing(NamedTuple):
    """A contender's figures."""

    right: Estimate
    correlation: Estimate
    in_time: float
    """The correlation of what it said in its time."""

    error: float
    seconds: float


def said(decisions: Decisions, fit: Collection[str], score: Scorer, in_time: Sequence[float] = ()) -> Said:
    """A contender on what it was not fitted on; a line over the fit prompts brings its differences to scale."""
    held = decisions.held_out
    right = [_right(score(pair.id, pair.better) - score(pair.id, pair.worse)) for pair in decisions.pairs(held)]
    known = [one for one in decisions.rollouts if one.id in fit]
    slope, offset = np.polyfit([_difference(score, one) for one in known], [truth(one) for one in known], 1)
    predicted = [slope * _difference(score, one) + offset for one in decisions.rollouts if one.id in held]
    return Said(right, predicted, list(in_time))


def truth(one: Rolled) -> float:
    return one.student.judge - one.teacher.judge


def pooled(runs: Sequence[HeldOut]) -> HeldOut:
    """All of them as one; conversations of different runs stay apart."""
    names = runs[0].said
    return HeldOut(
        [f"{at} {name}" for at, run in enumerate(runs) for name in run.pairs],
        [f"{at} {name}" for at, run in enumerate(runs) for name in run.rollouts],
        [value for run in runs for value in run.truth],
        {
            name: Said(
                [value for run in runs for value in run.said[name].right],
                [value for run in runs for value in run.said[name].predicted],
                [value for run in runs for value in run.said[name].in_time],
            )
            for name in names
        },
        {name: sum(run.seconds[name] for run in runs) for name in names},
    )


def standings(held: HeldOut) -> dict[str, Standing]:
    """Each contender by itself."""
    rights = estimates(np.array([one.right for one in held.said.values()]).T, groups(held.pairs), DRAWS, SEED)
    return {
        name: Standing(
            right, _estimate(_correlations(held, one.predicted)), _in_time(held, one), _error(held, one),
            held.seconds[name],
        )
        for (name, one), right in zip(held.said.items(), rights, strict=True)
    }  # fmt: skip


def ahead(held: HeldOut, one: str, other: str) -> tuple[Estimate, Estimate]:
    """By how much one contender is above another on the same prompts: in pairs put right, and in correlation."""
    column = np.array([held.said[one].right]).T - np.array([held.said[other].right]).T
    [right] = estimates(column, groups(held.pairs), DRAWS, SEED)
    return right, _estimate(
        _correlations(held, held.said[one].predicted) - _correlations(held, held.said[other].predicted)
    )


def _right(difference: float) -> float:
    return 0.5 if abs(difference) < SAME else float(difference > 0)


def _difference(score: Scorer, one: Rolled) -> float:
    return score(one.id, one.rewrite) - score(one.id, one.teacher_rewrite)


def _error(held: HeldOut, one: Said) -> float:
    """The root of the mean squared error."""
    return float(np.sqrt(np.mean(np.subtract(one.predicted, held.truth) ** 2)))


def _in_time(held: HeldOut, one: Said) -> float:
    return float(_correlations(held, one.in_time)[0]) if one.in_time else math.nan


def _correlations(held: HeldOut, predicted: Sequence[float]) -> NDArray[np.float64]:
    """The correlation with the truth, first over all rollouts, then over each draw of conversations."""
    x, y, conversations = np.array(predicted), np.array(held.truth), groups(held.rollouts)
    size = int(conversations.max()) + 1
    sums = np.zeros((size, 6))
    np.add.at(sums, conversations, np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1))
    drawn = np.random.default_rng(SEED).multinomial(size, np.full(size, 1 / size), DRAWS)
    n, mx, my, mxx, myy, mxy = (np.vstack([np.ones((1, size)), drawn]) @ sums).T
    return np.asarray((n * mxy - mx * my) / np.sqrt((n * mxx - mx**2) * (n * myy - my**2)))


def _estimate(drawn: NDArray[np.float64]) -> Estimate:
    low, high = np.nanpercentile(drawn[1:], ENDS)
    return Estimate(float(drawn[0]), float(low), float(high), len(drawn) - 1)
