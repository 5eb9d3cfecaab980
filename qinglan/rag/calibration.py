"""Converts a reranker's raw score to a probability, by Platt scaling: a slope and an intercept in log-odds.

Isotonic regression would need more labels: with those of twenty conversations its steps would follow the noise.
Platt's map is also strictly increasing, so it never changes the service's order.
"""

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from qinglan.config import Config

ScoreScale = Literal["probability", "logit"]
PROBABILITY_MARGIN = 1e-6
"""Distance of clipped scores from 0 and 1, which sigmoids in float32 reach: their log-odds would be infinite."""

LARGEST_LOG_ODDS = 60.0
"""Limit of log-odds: math.exp fails above 709."""

NO_CUT: dict[ScoreScale, float] = {"probability": 0.0, "logit": -1e6}
"""Thresholds below every score. Rerankers' logits are within a few dozens of 0."""


class Calibration(Config):
    """Probability from raw score, fitted on one tenant's labels."""

    scale: ScoreScale
    """The scale seen at the fit. `probability`: scores in [0, 1], mapped by their log-odds. `logit`: any numbers."""

    slope: float = Field(gt=0)
    """Log-odds of an answer per unit of the raw score's log-odds."""

    intercept: float
    """Log-odds of an answer at a raw score of 0, or of .5 on the scale `probability`."""

    def probability(self, raw: float) -> float:
        return _sigmoid(self.intercept + self.slope * log_odds(raw, self.scale))

    def raw(self, probability: float) -> float:
        """The raw score of a probability, for a threshold in the service's own scale; of 0, one that cuts nothing."""
        if probability <= 0:
            return NO_CUT[self.scale]
        # Inverse of `probability`: odds = intercept + slope * log_odds(raw).
        odds = (log_odds(probability, "probability") - self.intercept) / self.slope
        return odds if self.scale == "logit" else _sigmoid(odds)


def detect_scale(raw: Sequence[float]) -> ScoreScale:
    return "probability" if are_probabilities(raw) else "logit"


def are_probabilities(raw: Sequence[float]) -> bool:
    return all(0 <= score <= 1 for score in raw)


def _sigmoid(odds: float) -> float:
    return 1 / (1 + math.exp(-max(-LARGEST_LOG_ODDS, min(LARGEST_LOG_ODDS, odds))))


def log_odds(raw: float, scale: ScoreScale) -> float:
    if scale == "logit":
        return raw
    clipped = max(PROBABILITY_MARGIN, min(1 - PROBABILITY_MARGIN, raw))
    return math.log(clipped / (1 - clipped))
