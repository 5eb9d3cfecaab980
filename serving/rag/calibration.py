"""Turns a service's raw score into a probability, and holds the file that says how.

Platt's two numbers, a slope and an intercept in log-odds, rather than isotonic steps: a tenant may have labels in
twenty conversations, where steps follow the noise, and a strictly rising map never changes the service's order.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import orjson
from pydantic import Field, ValidationError

from qinglan.config import Config, explain_validation_error
from qinglan.errors import ConfigError
from serving.rag.config import RerankerIdentity
from serving.rag.lexical_reranker import FitReport, RerankerModel, read_reranker

ScoreScale = Literal["probability", "logit"]
PROBABILITY_MARGIN = 1e-6
"""Sigmoids in float32 reach 0 and 1; their log-odds would be endless."""

LARGEST_LOG_ODDS = 60.0


class Calibration(Config):
    """Probability from raw score, fitted on one tenant's labels."""

    scale: ScoreScale
    """The scale seen at the fit. `probability`: scores in [0, 1], mapped by their log-odds. `logit`: any numbers."""

    slope: float = Field(gt=0)
    intercept: float

    def probability(self, raw: float) -> float:
        total = self.intercept + self.slope * log_odds(raw, self.scale)
        return 1 / (1 + math.exp(-max(-LARGEST_LOG_ODDS, min(LARGEST_LOG_ODDS, total))))


class FittedServiceReranker(Config):
    """A service's calibration, and the local reranker that stands in for it, fitted on the same labels."""

    service: RerankerIdentity
    calibration: Calibration
    report: FitReport
    raw: FitReport | None
    """The same of the service's own scores, on the same conversations; None where they are no probabilities."""

    local: RerankerModel


def detect_scale(raw: Sequence[float]) -> ScoreScale:
    return "probability" if are_probabilities(raw) else "logit"


def are_probabilities(raw: Sequence[float]) -> bool:
    return all(0 <= score <= 1 for score in raw)


def log_odds(raw: float, scale: ScoreScale) -> float:
    if scale == "logit":
        return raw
    clipped = max(PROBABILITY_MARGIN, min(1 - PROBABILITY_MARGIN, raw))
    return math.log(clipped / (1 - clipped))


def read_fitted_reranker(path: Path) -> RerankerModel | FittedServiceReranker:
    """A tenant's file, local weights or a service's calibration, which its content tells."""
    try:
        content = path.read_bytes()
        if "service" in orjson.loads(content):
            return FittedServiceReranker.model_validate_json(content)
    except (OSError, orjson.JSONDecodeError, TypeError):
        pass  # read_reranker says what is wrong with it
    except ValidationError as error:
        raise ConfigError(f"{path}: no reranker: {explain_validation_error(error)}. Fit it again.") from error
    return read_reranker(path)
