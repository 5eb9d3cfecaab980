"""Estimate judge scores: a sample of prompts is judged, and a regression imputes the scores of all other rewrites.

With zeros instead of estimates, the judge would lose most of its weight in the reward; the README has the figures.

imputer = Imputer(FEATURE_COUNT)
imputer.add(features(prompt, "虾青素软胶囊 每日服用频次", quality=1.0, top1=0.9), score=0.86)
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from qinglan.files.files import sha256_text
from qinglan.reward.episode import Prompt
from qinglan.text.text import search_terms, term_coverage

MIN_JUDGED_SCORES = 30
"""Number of judged scores that the regression needs. With fewer scores the estimate is their mean."""

DEFAULT_SCORE = 0.6
"""Estimate before the first judged score: 3, the middle of the judge's scores from 1 to 5, divided by 5."""

LEAST, MOST = 0.2, 1.0
"""Bounds of an estimate: the judge's scores from 1 to 5, divided by 5."""

RIDGE = 1.0

HAT_BASIS_STEPS = 5
"""Number of steps of the hat basis, which turns a figure in [0, 1] into its nearness to 0 and to each step."""

LOWEST_FIRST_SCORE = 0.001
"""Lowest score of a first passage that features distinguish; lower scores are raised to it."""

FEATURE_COUNT = (HAT_BASIS_STEPS + 1) ** 2 + 2 * (HAT_BASIS_STEPS + 1)


def in_sample(id: str, share: float, seed: int, purpose: str) -> bool:
    """Return True if the sample for `purpose` holds a prompt; the result is the same in every process."""
    return int(sha256_text(purpose, str(seed), id)[:8], 16) / 2**32 < share


def raw_features(prompt: Prompt, text: str, quality: float, top1: float) -> list[float]:
    """Return four figures in [0, 1] on which a judge's score may depend.

    Two figures describe the retrieval: its quality, and the first passage's score on a logarithmic scale. The others
    describe the words: the share of the rewrite's terms in the question or history, and the share of the need's terms
    in the rewrite.
    """
    # 0.001 -> 0 and 1 -> 1, linear in the logarithm: most first scores are close to 0 or to 1.
    log_score = 1 - math.log(max(top1, LOWEST_FIRST_SCORE)) / math.log(LOWEST_FIRST_SCORE)
    known_share = term_coverage(text, set(search_terms(f"{prompt.question} {prompt.history_summary}")))
    need_share = term_coverage(prompt.need, set(search_terms(text)))
    return [min(1.0, max(0.0, figure)) for figure in (quality, log_score, known_share, need_share)]


def features(prompt: Prompt, text: str, quality: float, top1: float) -> list[float]:
    """Return a rewrite's features in a hat basis. Each step of the quality is multiplied with each step of the first
    score, so that a linear model can fit curves."""
    quality_steps, score_steps, known_steps, need_steps = map(_hat_basis, raw_features(prompt, text, quality, top1))
    products = (left * right for left in quality_steps for right in score_steps)
    return [*products, *known_steps, *need_steps]


class Imputer:
    """Online ridge regression of judge scores on features of the same rewrites."""

    def __init__(self, features: int) -> None:
        self._gram: Any = np.zeros((features + 1, features + 1))
        self._moment: Any = np.zeros(features + 1)
        # The constant has almost no penalty: just enough to keep the equations solvable.
        self._penalty: Any = np.diag([1e-9] + [RIDGE] * features)

    @property
    def count(self) -> int:
        return int(self._gram[0, 0])

    def add(self, features: Sequence[float], score: float) -> None:
        # Ridge regression needs only X'X and X'y, so a row is added to both and then forgotten. The constant comes
        # first: [0, 0] of the matrix counts the rows, [0] of the vector sums their scores.
        row = np.array([1.0, *features])
        self._gram += np.outer(row, row)
        self._moment += row * score

    def predict(self, features: Sequence[float]) -> float:
        if not self.count:
            return DEFAULT_SCORE
        if self.count < MIN_JUDGED_SCORES:
            return float(self._moment[0] / self.count)
        # w = (X'X + P)^-1 X'y
        weights = np.linalg.solve(self._gram + self._penalty, self._moment)
        return float(np.clip(weights @ np.array([1.0, *features]), LEAST, MOST))


def _hat_basis(figure: float) -> list[float]:
    """Return a figure's nearness to each step: 1 at the step, falling to 0 at the neighbouring steps."""
    return [max(0.0, 1 - abs(HAT_BASIS_STEPS * figure - step)) for step in range(HAT_BASIS_STEPS + 1)]
