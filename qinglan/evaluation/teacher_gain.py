"""Compare the teacher's rewrites with the plain questions, row by row, before anything is trained.

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
"""Largest p of the permutation test for a difference that counts. The interval is not enough, since a bootstrap's
interval of a handful of rows is too narrow."""

GOLD, SCORE = "gold passage first", "score of the first passage"
UNITS = {GOLD: 100.0, SCORE: 1.0}
"""Factor by which a figure is multiplied for people: shares are shown in percent."""


class RetrievalPair(NamedTuple):
    """The retrieval of one question and of its rewrite."""

    conversation: tuple[str, str]
    """Tenant and conversation. The turns of one conversation are drawn together."""

    gold: tuple[bool, bool] | None
    """True if the gold passage is first, for the question and for the rewrite; None if the row has no gold."""

    scores: tuple[float, float]
    """Score of the first passage, for the question and for the rewrite."""

    by_need: bool
    """True if both scores are against the same need; scores against the query itself cannot be compared."""


class TeacherGain(NamedTuple):
    """Comparison of the rewrites with the plain questions, by one measure."""

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
        """True if the rewrites find significantly less."""
        return self.high < 0 and self.p <= SIGNIFICANT

    @property
    def helps(self) -> bool:
        """True if the rewrites find significantly more."""
        return self.low > 0 and self.p <= SIGNIFICANT

    def in_words(self) -> str:
        factor, sign = UNITS[self.measure], "%" if self.measure == GOLD else ""
        digits = 1 if self.measure == GOLD else 3
        plain, rewritten, difference, low, high = (round(factor * value, digits) for value in self[1:6])
        return (
            f"{self.measure}: {plain:g}{sign} by the plain question, {rewritten:g}{sign} by the teacher's rewrite, "
            f"difference {difference:+g} [{low:+g}, {high:+g}] on {self.rows:,} rows without the test"
        )


def compare_teacher(pairs: Sequence[RetrievalPair]) -> TeacherGain | None:
    """Compare by gold, or by the reranker's score if few rows have gold; None if no rows can be compared, or all are
    of one conversation."""
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
    """The comparison that a `validate` step recorded; None if it recorded none."""
    recorded = facts.get("teacher_gain")
    return TeacherGain(**recorded) if recorded else None
