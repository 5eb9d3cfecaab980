"""Measures of a classifier's answers: pure functions of counts, so that drawn rows are measured as all rows are.

`row_sums` gives sums for each test row; any number of them added up, however often each, goes to `compute_measures`.
A confusion matrix has the true label down and the predicted one across.
"""

import numpy as np
from numpy.typing import NDArray

from qinglan.evaluation.statistics import Columns, Groups

BINS = 15
"""Bins of equal width from 0 to 1, by the confidence of the answer."""

MEASURES = ("accuracy", "macro_f1", "weighted_f1", "ece", "log_loss", "brier")
CLASS_MEASURES = ("precision", "recall", "f1")
LEAST = 1e-12
"""A probability of zero would make the log loss of a whole test infinite."""

Confusions = NDArray[np.float64]
"""A confusion matrix for each draw."""


def row_sums(truth: Groups, probabilities: Columns) -> Columns:
    """Each row's place in the confusion matrix, its bin's gap, log loss and Brier score."""
    width = probabilities.shape[1]
    right = np.eye(width)[truth]
    log_loss = -np.log(np.maximum((probabilities * right).sum(axis=1), LEAST))
    brier = ((probabilities - right) ** 2).sum(axis=1)
    counts = confusions(truth, probabilities.argmax(axis=1), width)
    return np.column_stack([counts, gaps(truth, probabilities), log_loss, brier])


def compute_measures(sums: Columns, width: int) -> Columns:
    """MEASURES, then CLASS_MEASURES for each label; `sums` has a row for each draw."""
    counts = sums[:, : width * width].reshape(-1, width, width)
    rows = counts.sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        ece = np.abs(sums[:, width * width : -2]).sum(axis=1) / rows
        losses = sums[:, -2:] / rows[:, None]
    whole = np.column_stack([accuracy(counts), macro_f1(counts), weighted_f1(counts), ece, losses])
    return np.hstack([whole, precision(counts), recall(counts), f1(counts)])


def confusions(truth: Groups, predicted: Groups, width: int) -> Columns:
    """A one where each row stands in the flattened confusion matrix."""
    return np.asarray(np.eye(width * width)[truth * width + predicted])


def gaps(truth: Groups, probabilities: Columns) -> Columns:
    """Right or not, minus the confidence, in the column of the row's bin."""
    confidence = probabilities.max(axis=1)
    gap = (probabilities.argmax(axis=1) == truth) - confidence
    return np.asarray(np.eye(BINS)[bin_of(confidence)] * gap[:, None])


def bin_of(confidence: Columns) -> Groups:
    return np.minimum((confidence * BINS).astype(np.int64), BINS - 1)


def accuracy(counts: Confusions) -> Columns:
    return _share(np.trace(counts, axis1=1, axis2=2), counts.sum(axis=(1, 2)))


def precision(counts: Confusions) -> Columns:
    """Share of what is called so that is so; NaN where nothing is called so."""
    return _share(np.diagonal(counts, axis1=1, axis2=2), counts.sum(axis=1))


def recall(counts: Confusions) -> Columns:
    return _share(np.diagonal(counts, axis1=1, axis2=2), counts.sum(axis=2))


def f1(counts: Confusions) -> Columns:
    """NaN for a label that is neither there nor called so."""
    return _share(2 * np.diagonal(counts, axis1=1, axis2=2), counts.sum(axis=1) + counts.sum(axis=2))


def macro_f1(counts: Confusions) -> Columns:
    """The mean over the labels that are there or called so."""
    scores = f1(counts)
    return _share(np.nansum(scores, axis=1), (~np.isnan(scores)).sum(axis=1))


def weighted_f1(counts: Confusions) -> Columns:
    support = counts.sum(axis=2)
    return _share((np.nan_to_num(f1(counts)) * support).sum(axis=1), support.sum(axis=1))


def kappa(counts: Confusions) -> Columns:
    """Cohen's: agreement beyond that of two who guess as often; NaN where there is nothing beyond."""
    total = counts.sum(axis=(1, 2))
    by_chance = _share((counts.sum(axis=1) * counts.sum(axis=2)).sum(axis=1), total**2)
    return _share(np.round(accuracy(counts) - by_chance, 12), np.round(1 - by_chance, 12))


def auc(scores: Columns, positive: NDArray[np.bool_], times: Columns) -> Columns:
    """How often a positive's score is above another's, ties half; a row of `times` for each draw."""
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=-np.inf))
    drawn, up = times[:, order], positive[order]
    above = np.add.reduceat(drawn * up, starts, axis=1)
    below = np.add.reduceat(drawn * ~up, starts, axis=1)
    won = (above * (below.cumsum(axis=1) - below / 2)).sum(axis=1)
    return _share(won, above.sum(axis=1) * below.sum(axis=1))


def undo_temperature(probabilities: Columns, temperature: float | Columns) -> Columns:
    """The probabilities of the same weights, had their logits not been divided by the temperature, or each row's."""
    logits = np.log(np.maximum(probabilities, np.finfo(np.float64).tiny)) * temperature
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def _share(part: Columns, whole: Columns) -> Columns:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(whole > 0, part / whole, np.nan))
