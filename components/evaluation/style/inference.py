"""The model asked once about every test row, and about its question alone."""

from collections.abc import Sequence

import numpy as np

from qinglan.evaluation.statistics import Columns
from qinglan.style.model import StyleModel
from qinglan.style.rows import StyleRow, question_only_text
from qinglan.terminal.progress import progress

BATCHES = 8
"""Batches between two reports of progress; texts of like length among them share a batch."""


def predict_probabilities(model: StyleModel, texts: Sequence[str], batch: int) -> Columns:
    """A row of probabilities for each text."""
    parts, step = [np.zeros((0, len(model.labels.labels)))], batch * BATCHES
    with progress("evaluate", len(texts)) as tick:
        for start in range(0, len(texts), step):
            parts.append(model.probabilities(texts[start : start + step], batch))
            for _ in texts[start : start + step]:
                tick()
    return np.concatenate(parts)


def predict_questions(model: StyleModel, rows: Sequence[StyleRow], batch: int) -> Columns:
    """The model's probabilities of each question by itself; the same question is asked about once."""
    alone = [question_only_text(row) for row in rows]
    at = {text: number for number, text in enumerate(dict.fromkeys(alone))}
    return np.asarray(predict_probabilities(model, list(at), batch)[[at[text] for text in alone]])
