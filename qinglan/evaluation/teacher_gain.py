"""The teacher against the plain question: a paired comparison before anything is trained.

gain = compare_teacher(pairs)
gain.is_worse        # the interval is below zero: a student of this teacher would learn to find less
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from qinglan.evaluation.statistics import PairedDifference, group_numbers, paired_differences

GOLD_ROWS = 20
"""Labelled rows required for a comparison by gold; with fewer the reranker's score decides."""

DRAWS, SEED = 2_000, 0
SIGNIFICANT = 0.05
"""Largest p of the permutation test: the bootstrap's interval of a handful of rows is too narrow."""

GOLD, SCORE = "gold passage first", "score of the first passage"
UNITS = {GOLD: 100.0, SCORE: 1.0}
"""Factor of a difference for people: shares in points."""


class RetrievalPair(NamedTuple):
    """The retrieval of one question and of its rewrite."""

    conversation: tuple[str, str]
    """Tenant and conversation: turns of one are drawn together."""

    gold: tuple[bool, bool] | None
    """The gold passage is first, by question and by rewrite; None without gold."""

    scores: tuple[float, float]
    """The first passage's score, by question and by rewrite."""

    by_need: bool
    """Both scores are against the same need; scores against the query itself cannot be compared."""


class TeacherGain(NamedTuple):
    """The rewrites against the plain questions, by one measure."""

    measure: str
    plain: float
    rewritten: float
    difference: float
    low: float
    high: float
    p: float
    rows: int

    @property
    def is_worse(self) -> bool:
        """The rewrites find less, beyond chance."""
        return self.high < 0 and self.p <= SIGNIFICANT

    @property
    def helps(self) -> bool:
        """The rewrites find more, beyond chance."""
        return self.low > 0 and self.p <= SIGNIFICANT

    def in_words(self) -> str:
        """The figures in one phrase."""
        factor, sign = UNITS[self.measure], "%" if self.measure == GOLD else ""
        digits = 1 if self.measure == GOLD else 3
        plain, rewritten, difference, low, high = (round(factor * value, digits) for value in self[1:6])
        return (
            f"{self.measure}: {plain:g}{sign} by the plain question, {rewritten:g}{sign} by the teacher's rewrite, "
            f"difference {difference:+g} [{low:+g}, {high:+g}] on {self.rows:,} rows without the test"
        )


def compare_teacher(pairs: Sequence[RetrievalPair]) -> TeacherGain | None:
    """Compare by gold, or by the reranker's score if few rows have gold; None if nothing compares."""
    golden = [pair for pair in pairs if pair.gold is not None]
    if len(golden) >= GOLD_ROWS:
        return _gain(GOLD, golden, [(float(a), float(b)) for a, b in (pair.gold for pair in golden if pair.gold)])
    scored = [pair for pair in pairs if pair.by_need]
    return _gain(SCORE, scored, [pair.scores for pair in scored])


def _gain(measure: str, pairs: Sequence[RetrievalPair], values: Sequence[tuple[float, float]]) -> TeacherGain | None:
    import numpy as np

    if not pairs:
        return None
    plain, rewritten = np.array(values).T
    groups = group_numbers([pair.conversation for pair in pairs])
    result: PairedDifference = paired_differences((rewritten - plain)[:, None], groups, DRAWS, SEED)[0]
    if math.isnan(result.low):  # one conversation has no interval
        return None
    means = float(plain.mean()), float(rewritten.mean())
    return TeacherGain(measure, *means, result.difference, result.low, result.high, result.p, len(pairs))


def gain_from_facts(facts: dict[str, Any]) -> TeacherGain | None:
    """The comparison that a step of `validate` recorded; None if it made none."""
    recorded = facts.get("teacher_gain")
    return TeacherGain(**recorded) if recorded else None
