"""Judge scores for rewrites that were not judged: whole prompts are sampled, the others' scores are regressed.

Filling in zero would take most of the judge's weight away; see the README for how much is left.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from qinglan.files import sha256_text

FEWEST = 30
"""Scores before the regression is believed; until then the mean of what was seen stands in."""

UNKNOWN = 0.6
"""The middle of 1 to 5, over 5: before the first score."""

LEAST, MOST = 0.2, 1.0
RIDGE = 1.0


def sampled(id: str, share: float, seed: int, purpose: str) -> bool:
    """Whether a prompt is in the sample; the same prompt always fares the same, in every process."""
    return int(sha256_text(purpose, str(seed), id)[:8], 16) / 2**32 < share


class Imputer:
    """An online ridge regression of judge scores on what retrieval says of the same rewrite."""

    def __init__(self, features: int) -> None:
        self._gram: Any = np.zeros((features + 1, features + 1))
        self._moment: Any = np.zeros(features + 1)
        self._penalty: Any = np.diag([1e-9] + [RIDGE] * features)

    @property
    def seen(self) -> int:
        return int(self._gram[0, 0])

    def add(self, features: Sequence[float], score: float) -> None:
        """Learn from a rewrite that was judged."""
        row = np.array([1.0, *features])
        self._gram += np.outer(row, row)
        self._moment += row * score

    def predict(self, features: Sequence[float]) -> float:
        """What the judge would probably say."""
        if not self.seen:
            return UNKNOWN
        if self.seen < FEWEST:
            return float(self._moment[0] / self.seen)
        weights = np.linalg.solve(self._gram + self._penalty, self._moment)
        return float(np.clip(weights @ np.array([1.0, *features]), LEAST, MOST))
