"""File of a tenant's fitted reranker: local weights, or the calibration of a reranker service."""

from pathlib import Path

import orjson
from pydantic import ValidationError

from qinglan.config import Config, explain_validation_error
from qinglan.errors import ConfigError
from qinglan.rag.calibration import Calibration
from serving.rag.config import RerankerIdentity
from serving.rag.rerank.lexical_reranker import FitReport, RerankerModel, read_reranker


class FittedServiceReranker(Config):
    """Calibration of a reranker service, and the local reranker that replaces the service if it fails.

    Both are fitted on the same labels.
    """

    service: RerankerIdentity
    calibration: Calibration
    report: FitReport
    raw: FitReport | None
    """Report on the service's raw scores for the same conversations; None if they are not probabilities."""

    local: RerankerModel


def read_fitted_reranker(path: Path) -> RerankerModel | FittedServiceReranker:
    """Read a tenant's file, which contains local weights or a service's calibration."""
    try:
        content = path.read_bytes()
        if "service" in orjson.loads(content):
            return FittedServiceReranker.model_validate_json(content)
    except (OSError, orjson.JSONDecodeError, TypeError):
        pass  # read_reranker explains the fault
    except ValidationError as error:
        raise ConfigError(f"{path}: no reranker: {explain_validation_error(error)}. Fit it again.") from error
    return read_reranker(path)
