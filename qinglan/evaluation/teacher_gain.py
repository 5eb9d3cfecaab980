"""Compare the teacher's rewrites with the plain questions, row by row, before a model is trained.

gain = compare_teacher(pairs)
gain.is_worse        # True if the interval is below zero: a student of this teacher would learn to find less
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from qinglan.evaluation.statistics import PairedDifference, group_numbers, paired_differences

GOLD_ROWS = 20
"""Number of rows with gold required for a comparison by gold; with fewer rows the reranker's score decides."""

DRAWS, SEED = 2_000, 0
SIGNIFICANT = 0.05
"""Largest p of the permutation test at which a difference counts. The interval is not enough, because a bootstrap
over a handful of rows gives too narrow an interval."""

GOLD, SCORE = "gold passage first", "score of the first passage"
UNITS = {GOLD: 100.0, SCORE: 1.0}
"""Factor by which each measure is multiplied for display: a share is shown in percent, a score as it is."""


class RetrievalPair(NamedTuple):
    """Results of searching with one question and with its rewrite."""

    conversation: tuple[str, str]
    """Tenant and conversation. The bootstrap draws all turns of a conversation together."""

    gold: tuple[bool, bool] | None
    """Two flags, for the question and for the rewrite: True if the gold passage is first. None without gold."""

    scores: tuple[float, float]
    """Two scores of the first passage: in the search with the question, and in the search with the rewrite."""

    by_need: bool
    """True if both passages were scored against the same need. Scores against the query cannot be compared."""


class TeacherGain(NamedTuple):
    """Result of comparing the teacher's rewrites with the plain questions by one measure."""

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
    """Compare by gold, or by the reranker's score if too few rows have gold. Returns None if no rows can be compared,
    or if all rows are of one conversation."""
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
    """Read the comparison that a `validate` step recorded; None if it recorded none."""
    recorded = facts.get("teacher_gain")
    return TeacherGain(**recorded) if recorded else None
