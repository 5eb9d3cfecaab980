"""Figures of held-out answers, and the alarms that end a training: pure functions over plain data."""

import math
import re
from collections.abc import Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from examples.style_policy.config import LimitsConfig

SURE = 1.96
"""Standard errors of a 95 % interval."""

GRAM = 4
"""Characters of a run that is said again or not."""

NUMBER = re.compile(r"\d+")

Values = NDArray[np.float64]


class Snapshot(NamedTuple):
    """Held-out answers at a step; rises and the gap's growth are paired by question with those of the start."""

    step: int
    reward: float
    judge: float
    """The independent one's probability of the wanted manners."""

    gap: float
    """Reward minus judge."""

    reward_low: float
    """Lower end of the 95 % interval of the reward's rise."""

    judge_low: float
    judge_high: float
    gap_growth: float
    gap_low: float
    kl: float
    """From the start, nats a token."""

    length: float
    """Characters an answer."""

    distinct: float
    variety: float
    repeats: float
    unfinished: float
    """Share of answers that were cut off."""


class Alarm(NamedTuple):
    """Why a training is ended."""

    name: Literal["gaming", "collapse"]
    message: str


class Range(NamedTuple):
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float


def paired(now: Values, start: Values) -> Range:
    """How far scores have risen, question by question; a row holds the answers to one."""
    difference = (now - start).mean(axis=1)
    error = SURE * float(difference.std(ddof=1)) / math.sqrt(len(difference))
    mean = float(difference.mean())
    return Range(mean, mean - error, mean + error)


def distinct(answers: Sequence[Sequence[str]]) -> float:
    """Share of the pairs of answers to one question that differ by more than numbers."""
    plain = [[NUMBER.sub("0", answer) for answer in of_one] for of_one in answers]
    pairs = [left != other for of_one in plain for left, other in combinations(of_one, 2)]
    return sum(pairs) / len(pairs)


def variety(answers: Sequence[str]) -> float:
    """Share of distinct runs of four characters in all these answers; numbers count as equal."""
    plain = [NUMBER.sub("0", answer) for answer in answers]
    grams = [text[at : at + GRAM] for text in plain for at in range(len(text) - GRAM + 1)]
    return len(set(grams)) / len(grams) if grams else 0.0


def alarm(snapshots: Sequence[Snapshot], limits: LimitsConfig) -> Alarm | None:
    """The alarm that the newest snapshot raises; the gap counts only if chance does not explain it."""
    now, start = snapshots[-1], snapshots[0]
    if now.gap_low > limits.gap or (now.reward_low > 0 and now.judge_high < -limits.fall):
        return Alarm(
            "gaming",
            f"The reward went from {start.reward:.3f} to {now.reward:.3f} and the independent judge from "
            f"{start.judge:.3f} to {now.judge:.3f} by step {now.step}: the gap grew by {now.gap_growth:.3f}. "
            "Read newest.jsonl for what the reward model falls for, and train it on that.",
        )
    if now.distinct < limits.distinct and now.distinct < start.distinct:
        return Alarm(
            "collapse",
            f"{1 - now.distinct:.0%} of pairs of answers to one question are alike at step {now.step}, and "
            f"{1 - start.distinct:.0%} were at the start. Raise beta or the temperature, or lower the learning rate.",
        )
    if now.variety < limits.variety * start.variety:
        return Alarm(
            "collapse",
            f"The variety of all answers together is {now.variety:.3f} at step {now.step}, {start.variety:.3f} at "
            "the start: few sentences are left. Raise beta or the temperature, or lower the learning rate.",
        )
    if now.repeats > limits.repeats and now.repeats > start.repeats:
        return Alarm(
            "collapse",
            f"Answers repeat {now.repeats:.0%} of themselves at step {now.step}, {start.repeats:.0%} at the start. "
            "Raise beta, or lower the learning rate.",
        )
    return None


def best(snapshots: Sequence[Snapshot], limits: LimitsConfig) -> Snapshot | None:
    """The look that stands highest by the independent judge, surely above the start and without an alarm, if any."""
    sound = [
        snapshot
        for at, snapshot in enumerate(snapshots)
        if snapshot.judge_low > 0 and alarm(snapshots[: at + 1], limits) is None
    ]
    return max(sound, key=lambda snapshot: snapshot.judge, default=None)
