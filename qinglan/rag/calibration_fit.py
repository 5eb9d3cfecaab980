"""Fits a calibration to scores and labels. Stages only read calibrations, because their images have no
scikit-learn."""

from collections.abc import Sequence

from qinglan.errors import DataError
from qinglan.rag.calibration import Calibration, ScoreScale, log_odds


def fit_calibration(raw: Sequence[float], answers: Sequence[bool], scale: ScoreScale, where: str) -> Calibration:
    """Fit slope and intercept. `answers` says which scores belong to passages that answer; a DataError is raised if
    these are not higher than the others."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    odds = np.array([[log_odds(score, scale)] for score in raw])
    if len(set(answers)) < 2 or not odds.std():
        raise DataError(f"{where}: answers or scores are all the same. Look at the labels, then at the service.")
    # Standardised for the solver, since logits may be in the hundreds; slope and intercept are scaled back below.
    mean, deviation = float(odds.mean()), float(odds.std())
    model = LogisticRegression(max_iter=1000).fit((odds - mean) / deviation, answers)
    slope = round(float(model.coef_[0][0]) / deviation, 6)
    if slope <= 0:
        raise DataError(
            f"{where}: passages that answer score no higher than others (slope {slope}). "
            "See that the service serves a reranker, with the prompt that it was trained with."
        )
    return Calibration(scale=scale, slope=slope, intercept=round(float(model.intercept_[0]) - slope * mean, 6))
