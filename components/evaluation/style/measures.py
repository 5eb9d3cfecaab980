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
    """Each row's cell of the confusion matrix, its bin's gap, log loss and Brier score."""
    # Every measure is a function of these sums, so a draw of rows is one matrix product (statistics.py).
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
    """A flattened confusion matrix for each row: 1 in its cell, else 0."""
    return np.asarray(np.eye(width * width)[truth * width + predicted])


def gaps(truth: Groups, probabilities: Columns) -> Columns:
    """Right or not, minus the confidence, in the column of the row's bin."""
    # ECE (Naeini et al. 2015) is the sum over bins of |sum of (right - confidence)| / rows.
    confidence = probabilities.max(axis=1)
    gap = (probabilities.argmax(axis=1) == truth) - confidence
    return np.asarray(np.eye(BINS)[bin_of(confidence)] * gap[:, None])


def bin_of(confidence: Columns) -> Groups:
    return np.minimum((confidence * BINS).astype(np.int64), BINS - 1)


def accuracy(counts: Confusions) -> Columns:
    return _share(np.trace(counts, axis1=1, axis2=2), counts.sum(axis=(1, 2)))


def precision(counts: Confusions) -> Columns:
    """Share of the rows called a label that have it; NaN for a label that no row is called."""
    return _share(np.diagonal(counts, axis1=1, axis2=2), counts.sum(axis=1))


def recall(counts: Confusions) -> Columns:
    return _share(np.diagonal(counts, axis1=1, axis2=2), counts.sum(axis=2))


def f1(counts: Confusions) -> Columns:
    """NaN for a label that no row has or is called."""
    return _share(2 * np.diagonal(counts, axis1=1, axis2=2), counts.sum(axis=1) + counts.sum(axis=2))


def macro_f1(counts: Confusions) -> Columns:
    """The mean over the labels that a row has or is called."""
    scores = f1(counts)
    return _share(np.nansum(scores, axis=1), (~np.isnan(scores)).sum(axis=1))


def weighted_f1(counts: Confusions) -> Columns:
    support = counts.sum(axis=2)
    return _share((np.nan_to_num(f1(counts)) * support).sum(axis=1), support.sum(axis=1))


def kappa(counts: Confusions) -> Columns:
    """Cohen's kappa (1960); NaN if chance would agree always."""
    # (p_o - p_e) / (1 - p_e), with p_e the agreement of two raters who guess by their own frequencies.
    total = counts.sum(axis=(1, 2))
    by_chance = _share((counts.sum(axis=1) * counts.sum(axis=2)).sum(axis=1), total**2)
    return _share(np.round(accuracy(counts) - by_chance, 12), np.round(1 - by_chance, 12))


def auc(scores: Columns, positive: NDArray[np.bool_], times: Columns) -> Columns:
    """Area under the ROC curve in each draw, a row of `times`."""
    # The Mann-Whitney form: the share of pairs in which the positive's score is above the negative's, ties half.
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=-np.inf))
    drawn, up = times[:, order], positive[order]
    above = np.add.reduceat(drawn * up, starts, axis=1)
    below = np.add.reduceat(drawn * ~up, starts, axis=1)
    won = (above * (below.cumsum(axis=1) - below / 2)).sum(axis=1)
    return _share(won, above.sum(axis=1) * below.sum(axis=1))


def undo_temperature(probabilities: Columns, temperature: float | Columns) -> Columns:
    """The probabilities of the same weights without the temperature, or without each row's."""
    # The logits are the log probabilities but for a constant in each row, which the softmax ignores.
    logits = np.log(np.maximum(probabilities, np.finfo(np.float64).tiny)) * temperature
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def _share(part: Columns, whole: Columns) -> Columns:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(whole > 0, part / whole, np.nan))
