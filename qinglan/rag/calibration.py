"""Converts a reranker's raw score to a probability, by Platt scaling: a slope and an intercept in log-odds.

Isotonic regression would need more labels: with the labels of twenty conversations its steps would follow the noise.
Platt scaling is also strictly increasing, so it never changes the service's order.
"""

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from qinglan.config import Config

ScoreScale = Literal["probability", "logit"]
PROBABILITY_MARGIN = 1e-6
"""Distance at which scores are clipped before 0 and 1, because a sigmoid in float32 can reach both, and their
log-odds are infinite."""

LARGEST_LOG_ODDS = 60.0
"""Absolute value at which log-odds are clipped, because math.exp fails above 709."""

NO_CUT: dict[ScoreScale, float] = {"probability": 0.0, "logit": -1e6}
"""Threshold that is below every score, by the scale of the scores. Logits of rerankers are within a few dozens of
0."""


class Calibration(Config):
    """Map from raw scores to probabilities, fitted on one tenant's labels."""

    scale: ScoreScale
    """Scale of the raw scores on which the calibration was fitted: `probability` for scores in [0, 1], which are
    mapped by their log-odds, or `logit` for any numbers."""

    slope: float = Field(gt=0)
    """Increase of the log-odds that a passage is an answer, per unit of the raw score; on the scale `probability`,
    per unit of the raw score's log-odds."""

    intercept: float
    """Log-odds that a passage is an answer at a raw score of 0; on the scale `probability`, at a raw score of 0.5."""

    def probability(self, raw: float) -> float:
        return _sigmoid(self.intercept + self.slope * log_odds(raw, self.scale))

    def raw(self, probability: float) -> float:
        """Convert a probability threshold to the service's own scale; 0 becomes a threshold that cuts nothing."""
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
    # sigmoid(x) = 1 / (1 + e^-x)
    return 1 / (1 + math.exp(-max(-LARGEST_LOG_ODDS, min(LARGEST_LOG_ODDS, odds))))


def log_odds(raw: float, scale: ScoreScale) -> float:
    if scale == "logit":
        return raw
    clipped = max(PROBABILITY_MARGIN, min(1 - PROBABILITY_MARGIN, raw))
    return math.log(clipped / (1 - clipped))
