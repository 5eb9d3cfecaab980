"""Baseline that the style model must beat: a classifier of character n-grams, fitted and tested on the same rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from components.evaluation.style.measures import confusions, macro_f1
from qinglan.errors import DataError
from qinglan.evaluation.statistics import Columns
from qinglan.style.rows import StyleRow

NGRAMS = (1, 3)


class Baseline(NamedTuple):
    """A baseline's predictions for the test, and the choice of its parameter C."""

    probabilities: Columns
    c: float
    dev_macro_f1: dict[str, float]
    """Macro F1 on dev for each C that was tried."""


def fit_baseline(
    train: Sequence[StyleRow],
    dev: Sequence[StyleRow],
    test: Sequence[StyleRow],
    labels: Sequence[str],
    choices: Sequence[float],
) -> Baseline:
    """Fit a logistic regression on TF-IDF of character 1- to 3-grams, on train only, and predict the test. C is
    chosen by macro F1 on dev."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    if len({row.label for row in train}) < 2:
        raise DataError("train.jsonl: all rows have the same label. A style needs answers of another; prepare more.")
    vectors = TfidfVectorizer(analyzer="char", ngram_range=NGRAMS, sublinear_tf=True)
    learned = vectors.fit_transform([row.input for row in train])
    names, on_dev = [row.label for row in train], vectors.transform([row.input for row in dev])
    truth, width = np.array([labels.index(row.label) for row in dev]), len(labels)
    models, scores = {}, {}
    for c in choices:
        models[c] = LogisticRegression(C=c, max_iter=2_000).fit(learned, names)
        predicted = _probabilities(models[c], on_dev, labels).argmax(axis=1)
        counts = confusions(truth, predicted, width).sum(axis=0)
        scores[c] = float(macro_f1(counts.reshape(1, width, width))[0])
    best = max(scores, key=lambda c: (scores[c], -c))
    on_test = _probabilities(models[best], vectors.transform([row.input for row in test]), labels)
    return Baseline(on_test, best, {f"{c:g}": score for c, score in scores.items()})


def _probabilities(model: Any, vectors: Any, labels: Sequence[str]) -> Columns:
    """Return probabilities with a column for each of `labels`, in that order; 0 for a label that is not in train."""
    out = np.zeros((vectors.shape[0], len(labels)))
    out[:, [labels.index(name) for name in model.classes_]] = model.predict_proba(vectors)
    return out
