"""The independent judge: of another family than the reward model, learned from other rows, never in the reward.

Counts of characters know nothing of word order, which is what a style model is for, so the judge is the weaker of the
two. It need not be as good: it must only not share the reward model's mistakes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qinglan.errors import DataError
from qinglan.style.rows import StyleRow

STRENGTH = 100.0
"""Inverse regularisation of the fit: large enough that its probabilities can range as widely as the reward's."""


class Judge:
    """How probable it is that a text is in a wanted manner."""

    def __init__(self, fitted: Any, rewarded: Sequence[str]) -> None:
        self._fitted = fitted
        self._columns = [list(fitted.classes_).index(name) for name in rewarded]

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float64]:
        return np.asarray(self._fitted.predict_proba(list(texts))[:, self._columns].sum(axis=1))

    def accuracy(self, rows: Sequence[StyleRow]) -> float:
        return float(np.mean(self._fitted.predict([row.input for row in rows]) == [row.label for row in rows]))


def fit_judge(rows: Sequence[StyleRow], test: Sequence[StyleRow], rewarded: Sequence[str]) -> tuple[Judge, float]:
    """The judge and its accuracy on rows it never saw; one that has learned nothing is an error."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    labels = [row.label for row in rows]
    if lacking := sorted(set(rewarded) - set(labels)):
        raise DataError(f"dev.jsonl: no rows from which a judge could tell {lacking[0]!r}. Prepare more rows.")
    if len(set(labels)) < 2:
        raise DataError(f"dev.jsonl: all rows are labelled {labels[0]!r}; a judge needs others beside it.")
    fitted = make_pipeline(
        TfidfVectorizer(analyzer="char", ngram_range=(1, 3), sublinear_tf=True),
        LogisticRegression(C=STRENGTH, max_iter=1000),
    )
    judge = Judge(fitted.fit([row.input for row in rows], labels), rewarded)
    accuracy = judge.accuracy(test)
    commonest = max(np.mean([row.label == name for row in test]) for name in set(labels))
    if accuracy <= commonest:
        raise DataError(
            f"The independent judge is right in {accuracy:.0%} of the test rows, and one label for all would be "
            f"in {commonest:.0%}: it could not tell gaming from learning. Prepare more dev rows."
        )
    return judge, accuracy
