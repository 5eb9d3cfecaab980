"""Measures of a classifier's answers, as pure functions of sums over rows. The same code measures all rows and a
bootstrap draw of rows.

`row_sums` gives a line of numbers for each test row. The lines of any selection of rows, with repeats, are added up
and passed to `compute_measures`. A confusion matrix has true labels down and predicted labels across.
"""

import numpy as np
from numpy.typing import NDArray

from qinglan.evaluation.statistics import Columns, Groups

BINS = 15
"""Number of bins of confidence, of equal width between 0 and 1."""

MEASURES = ("accuracy", "macro_f1", "weighted_f1", "ece")
CLASS_MEASURES = ("precision", "recall", "f1")

Confusions = NDArray[np.float64]
"""Confusion matrices, one per bootstrap sample: samples x true labels x predicted labels."""


def row_sums(truth: Groups, probabilities: Columns) -> Columns:
    """Return the numbers of each row that can be summed over rows: its confusion matrix and its `gaps`."""
    # Every measure is a function of these sums, so a draw of rows is one matrix product (statistics.py).
    counts = confusions(truth, probabilities.argmax(axis=1), probabilities.shape[1])
    return np.column_stack([counts, gaps(truth, probabilities)])


def compute_measures(sums: Columns, width: int) -> Columns:
    """Compute MEASURES, then each of CLASS_MEASURES for every label. `sums` and the result have a row per draw."""
    counts = sums[:, : width * width].reshape(-1, width, width)
    rows = counts.sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        ece = np.abs(sums[:, width * width :]).sum(axis=1) / rows
    whole = np.column_stack([accuracy(counts), macro_f1(counts), weighted_f1(counts), ece])
    return np.hstack([whole, precision(counts), recall(counts), f1(counts)])


def confusions(truth: Groups, predicted: Groups, width: int) -> Columns:
    """Return a flattened confusion matrix for each row, with 1 in the row's cell and 0 elsewhere."""
    return np.asarray(np.eye(width * width)[truth * width + predicted])


def gaps(truth: Groups, probabilities: Columns) -> Columns:
    """Return the calibration gap of each row, in the column of the row's bin of confidence. The gap is 1 - confidence
    if the answer is right, else 0 - confidence."""
    # ECE (Naeini et al. 2015) is the sum over bins of |sum of (right - confidence)| / rows.
    confidence = probabilities.max(axis=1)
    gap = (probabilities.argmax(axis=1) == truth) - confidence
    return np.asarray(np.eye(BINS)[bin_of(confidence)] * gap[:, None])


def bin_of(confidence: Columns) -> Groups:
    return np.minimum((confidence * BINS).astype(np.int64), BINS - 1)


def accuracy(counts: Confusions) -> Columns:
    return _share(np.trace(counts, axis1=1, axis2=2), counts.sum(axis=(1, 2)))


def precision(counts: Confusions) -> Columns:
    """Share of rows predicted as a label that have this label; NaN for a label that is never predicted."""
    return _share(np.diagonal(counts, axis1=1, axis2=2), counts.sum(axis=1))


def recall(counts: Confusions) -> Columns:
    return _share(np.diagonal(counts, axis1=1, axis2=2), counts.sum(axis=2))


def f1(counts: Confusions) -> Columns:
    """F1 of each label; NaN for a label that neither occurs nor is predicted."""
    return _share(2 * np.diagonal(counts, axis1=1, axis2=2), counts.sum(axis=1) + counts.sum(axis=2))


def macro_f1(counts: Confusions) -> Columns:
    """Mean F1 over the labels that occur or are predicted."""
    scores = f1(counts)
    return _share(np.nansum(scores, axis=1), (~np.isnan(scores)).sum(axis=1))


def weighted_f1(counts: Confusions) -> Columns:
    support = counts.sum(axis=2)
    return _share((np.nan_to_num(f1(counts)) * support).sum(axis=1), support.sum(axis=1))


def kappa(counts: Confusions) -> Columns:
    """Cohen's kappa (1960); NaN if both raters give the same single label to every row."""
    # (p_o - p_e) / (1 - p_e), with p_e the agreement of two raters who guess by their own frequencies.
    total = counts.sum(axis=(1, 2))
    by_chance = _share((counts.sum(axis=1) * counts.sum(axis=2)).sum(axis=1), total**2)
    return _share(np.round(accuracy(counts) - by_chance, 12), np.round(1 - by_chance, 12))


def undo_temperature(probabilities: Columns, temperature: float | Columns) -> Columns:
    """Return the probabilities that the model would give without its temperature. `temperature` is one number, or a
    column with a number for each row."""
    # The logits equal the log probabilities plus a constant for each row, which the softmax ignores.
    logits = np.log(np.maximum(probabilities, np.finfo(np.float64).tiny)) * temperature
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def _share(part: Columns, whole: Columns) -> Columns:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(whole > 0, part / whole, np.nan))
