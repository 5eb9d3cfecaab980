"""Headroom of a training by rewards: the share of questions for which one of a model's sampled rewrites finds a gold
passage first, but its greedy rewrite does not.

    by_kind = measure_headroom(outcomes, draws=2_000, seed=0)
    decide(by_kind["all"], worth=0.03).sentence

Rewards can only strengthen rewrites that a model already writes now and then. If the best of k samples finds no more
gold passages than the greedy rewrite, a training by rewards has next to nothing to learn from.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from qinglan.evaluation.statistics import Estimate, bootstrap_means, group_numbers

ALL = "all"
Word = Literal["worth trying", "not worth it", "not shown"]


class RowOutcome(NamedTuple):
    """Results of one question. A result is 1 for a rewrite that finds a gold passage first, else 0."""

    conversation: Hashable
    kinds: Sequence[str]
    """Kinds of question to which this question belongs."""

    teacher: float
    greedy: float
    """Result of the model's greedy rewrite."""

    samples: Sequence[float]
    """Results of the model's k sampled rewrites."""

    @property
    def best(self) -> float:
        """Return 1 if any of the samples finds a gold passage first, else 0."""
        return max(self.samples)


class Headroom(NamedTuple):
    """Shares of questions with a gold passage first, for one kind of question, with intervals over conversations."""

    teacher: Estimate
    greedy: Estimate
    sampled: Estimate
    """Mean result of a question's samples."""

    best: Estimate
    """Result of a question's best sample."""

    learned: Estimate
    """Result of the greedy rewrite minus the teacher's result."""

    gain: Estimate
    """Result of the best sample minus the result of the greedy rewrite."""

    unreached: Estimate
    """Share of questions for which the teacher, the greedy rewrite and all samples fail. Rewards cannot improve these
    questions, because no sample shows the right rewrite."""

    @property
    def rows(self) -> int:
        return self.greedy.n


class Decision(NamedTuple):
    """Advice on a training by rewards."""

    word: Word
    sentence: str


def measure_headroom(rows: Sequence[RowOutcome], draws: int, seed: int) -> dict[str, Headroom]:
    """Measure the headroom of all questions, and then of each kind of question by its name."""
    kinds = sorted({kind for row in rows for kind in row.kinds})
    parts = {ALL: list(rows)} | {kind: [row for row in rows if kind in row.kinds] for kind in kinds}
    return {name: _headroom(part, draws, seed) for name, part in parts.items()}


def _headroom(rows: Sequence[RowOutcome], draws: int, seed: int) -> Headroom:
    columns = np.array([_columns(row) for row in rows], dtype=np.float64).reshape(len(rows), 7)
    conversations = group_numbers([row.conversation for row in rows])
    return Headroom(*bootstrap_means(columns, conversations, draws, seed))


def _columns(row: RowOutcome) -> tuple[float, ...]:
    mean = sum(row.samples) / len(row.samples)
    unreached = 1.0 - max(row.teacher, row.greedy, row.best)
    gains = row.greedy - row.teacher, row.best - row.greedy
    return row.teacher, row.greedy, mean, row.best, *gains, unreached


def decide(headroom: Headroom, worth: float) -> Decision:
    """Advise on a training by the interval of the gain; `worth` is the smallest gain that would be worth its cost."""
    gain = headroom.gain
    interval = f"{gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
    if math.isnan(gain.low):
        return Decision("not shown", "Too few conversations for an interval: bring more dev rows.")
    if gain.high < worth:
        return Decision(
            "not worth it",
            f"The best of the samples gains {interval}, less than {worth:.3f}: rewards would have next to nothing to "
            "strengthen. Gain lies in data: more questions, or passages that use the users' words.",
        )
    if gain.low >= worth:
        return Decision(
            "worth trying",
            f"The best of the samples gains {interval}: rewards can strengthen what the model already writes now and "
            "then.",
        )
    return Decision(
        "not shown", f"The best of the samples gains {interval}, around {worth:.3f}: more dev rows would tell."
    )


Numbers = dict[str, float | int | None]


def as_json(by_kind: Mapping[str, Headroom]) -> dict[str, dict[str, Numbers]]:
    return {
        kind: {name: estimate_as_json(estimate) for name, estimate in headroom._asdict().items()}
        for kind, headroom in by_kind.items()
    }


def estimate_as_json(estimate: Estimate) -> Numbers:
    """Convert an estimate to plain data; NaN becomes null."""
    return {name: None if math.isnan(value) else value for name, value in estimate._asdict().items()}
