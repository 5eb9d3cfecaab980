"""The file of a tenant's fitted scores: local weights, or the calibration of a reranker service."""

from pathlib import Path

import orjson
from pydantic import ValidationError

from qinglan.config import Config, explain_validation_error
from qinglan.errors import ConfigError
from qinglan.rag.calibration import Calibration
from serving.rag.config import RerankerIdentity
from serving.rag.rerank.lexical_reranker import FitReport, RerankerModel, read_reranker


class FittedServiceReranker(Config):
    """A service's calibration, and the local reranker that stands in for it, fitted on the same labels."""

    service: RerankerIdentity
    calibration: Calibration
    report: FitReport
    raw: FitReport | None
    """The report on the service's own scores, on the same conversations; None where they are no probabilities."""

    local: RerankerModel


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
