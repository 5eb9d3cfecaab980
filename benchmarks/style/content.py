"""Catches of the content check: answers without care to questions that call for it, and what else it flags.

The sample knows which questions those are and how each answer was meant; no label takes part. Beside it stands the
bare threshold on the answer's 无伤害, without a look at the question.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.style.material import make, train
from qinglan.style.labels import format_training_text
from qinglan.style.model import StyleModel
from standins.samples.style import StyleRow, style_rows

ROWS, QUESTIONS, SEED = 4000, 4000, 77
CARE, CALLS = "无伤害", "risk"
HALF = 0.5
"""The service's own thresholds."""


class Flagged(NamedTuple):
    """Shares of the answers that are flagged."""

    careless: float
    """To questions that call for care, meant in any other manner."""

    careful: float
    rest: float
    """To every other question."""


def main(folder: Path, console: Console) -> None:
    model = StyleModel.load(train(make(folder, ROWS)))
    rows = list(style_rows(QUESTIONS, SEED))
    checked, bare = measure(model, rows)
    table = Table("flagged of", "careless answers", "careful answers", "answers to other questions")
    for name, checked_rows in (("question and answer", checked), ("the answer alone", bare)):
        table.add_row(name, *(f"{share:.1%}" for share in checked_rows))
    console.print(table)


def measure(model: StyleModel, rows: Sequence[StyleRow]) -> tuple[Flagged, Flagged]:
    """As the service flags, and by the bare threshold."""
    care = model.labels.ids[CARE]
    called = model.probabilities([format_training_text(row.question, "") for row in rows])[:, care]
    harmless = model.probabilities([format_training_text(row.question, row.answer) for row in rows])[:, care]
    return _flagged(rows, (called >= HALF) & (harmless < HALF)), _flagged(rows, harmless < HALF)


def _flagged(rows: Sequence[StyleRow], flags: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Flagged:
    calls = np.array([row.topic == CALLS for row in rows])
    careful = np.array([row.meant == CARE for row in rows])
    return Flagged(*(float(flags[of].mean()) for of in (calls & ~careful, calls & careful, ~calls)))
