"""Judge scores for rewrites that were not judged: whole prompts are sampled, the others' scores are regressed.

Filling in zero would take most of the judge's weight away; see the README for how much is left.

imputer = Imputer(FEATURES)
imputer.add(features(prompt, "虾青素软胶囊 每日服用频次", quality=1.0, top1=0.9), score=0.86)
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from qinglan.files import sha256_text
from qinglan.reward.episode import Prompt
from qinglan.text import bigram_coverage, bigrams

MIN_JUDGED_SCORES = 30
"""Scores before the regression is believed; until then the mean of what was seen stands in."""

DEFAULT_SCORE = 0.6
"""The middle of 1 to 5, over 5: before the first score."""

LEAST, MOST = 0.2, 1.0
RIDGE = 1.0

HAT_BASIS_STEPS = 5
"""A figure from 0 to 1 is told by how near it is to 0 and to each of so many steps."""

FAINT = 0.001
"""Scores of the first passage below it are alike."""

FEATURE_COUNT = (HAT_BASIS_STEPS + 1) ** 2 + 2 * (HAT_BASIS_STEPS + 1)


def in_sample(id: str, share: float, seed: int, purpose: str) -> bool:
    """Whether a prompt is in the sample; the same prompt always fares the same, in every process."""
    return int(sha256_text(purpose, str(seed), id)[:8], 16) / 2**32 < share


def raw_features(prompt: Prompt, text: str, quality: float, top1: float) -> list[float]:
    """What a judge's score may follow from, each in [0, 1].

    What retrieval says of the text: its quality, and its first score by the logarithm. How its words stand to the
    conversation: how much of the text is known there, and how much of the need it says.
    """
    bright = 1 - math.log(max(top1, FAINT)) / math.log(FAINT)
    known = bigram_coverage(text, set(bigrams(f"{prompt.question} {prompt.history_summary}")))
    said = bigram_coverage(prompt.need, set(bigrams(text)))
    return [min(1.0, max(0.0, figure)) for figure in (quality, bright, known, said)]


def features(prompt: Prompt, text: str, quality: float, top1: float) -> list[float]:
    """The figures by their steps, the first two each with each: what is linear in these bends where a judge does."""
    found, bright, known, said = map(_hat_basis, raw_features(prompt, text, quality, top1))
    return [*(here * there for here in found for there in bright), *known, *said]


class Imputer:
    """An online ridge regression of judge scores on features of the same rewrites."""

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
            return DEFAULT_SCORE
        if self.seen < MIN_JUDGED_SCORES:
            return float(self._moment[0] / self.seen)
        weights = np.linalg.solve(self._gram + self._penalty, self._moment)
        return float(np.clip(weights @ np.array([1.0, *features]), LEAST, MOST))


def _hat_basis(figure: float) -> list[float]:
    """How near it is to each step: 1 on it, 0 from the next on."""
    return [max(0.0, 1 - abs(HAT_BASIS_STEPS * figure - step)) for step in range(HAT_BASIS_STEPS + 1)]
