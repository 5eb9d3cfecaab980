"""Cross-fitting, for data too small for a locked test: each row is predicted by a model that did not learn from it.

Near-duplicate rows are in the same fold. For each fold, a model is trained on the other folds in the same way as the
released model, and predicts the fold's rows. The released model's folder holds these predictions, by the row's id and
without its text.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.errors import DataError
from qinglan.files.files import atomic_write
from qinglan.style.model import StyleModel, read_card
from qinglan.style.rows import CROSS_FITTED_FILE, CrossFitted, StyleRow, question_only_text


class Fold(NamedTuple):
    """A fold's rows: to learn from, to choose the checkpoint on, and the held-out rows to predict."""

    number: int
    train: list[StyleRow]
    dev: list[StyleRow]
    held_out: list[StyleRow]


Train = Callable[[Fold, Path], None]
"""Function that trains a model on a fold's rows and writes it into a folder."""


def cross_fit(folds: Sequence[Fold], train: Train, work: Path, model: Path) -> None:
    """Train a model for each fold, and write its predictions for the fold's held-out rows into the released model's
    folder."""
    answers = list[dict[str, Any]]()
    for fold in folds:
        folder = work / f"fold-{fold.number}"
        train(fold, folder)
        sibling, temperature = StyleModel.load(folder), read_card(folder).temperature
        whole = sibling.probabilities([row.input for row in fold.held_out]).tolist()
        alone = sibling.probabilities([question_only_text(row) for row in fold.held_out]).tolist()
        for row, answer, question in zip(fold.held_out, whole, alone, strict=True):
            answers.append(
                CrossFitted(
                    id=row.id,
                    fold=fold.number,
                    temperature=temperature,
                    probabilities=answer,
                    question_alone=question,
                ).model_dump(mode="json")
            )
    with atomic_write(model / CROSS_FITTED_FILE) as partial:
        partial.write_bytes(orjson.dumps(answers))


def make_folds(train: Sequence[StyleRow], dev: Sequence[StyleRow], folds: Mapping[str, int]) -> list[Fold]:
    """Make the folds, in order. A fold's checkpoint is chosen on the dev rows outside of the fold or, if there are
    none, on the next fold."""
    rows = [*train, *dev]
    if strange := [row.id for row in rows if row.id not in folds]:
        raise DataError(f"row {strange[0]} is in no fold. Prepare the data again.")
    numbers = sorted({folds[row.id] for row in rows})
    out = []
    for at, number in enumerate(numbers):
        chosen = [row for row in dev if folds[row.id] != number]
        if not chosen:
            following = numbers[(at + 1) % len(numbers)]
            chosen = [row for row in rows if folds[row.id] == following]
        names = {row.id for row in chosen}
        learned = [row for row in rows if folds[row.id] != number and row.id not in names]
        out.append(Fold(number, learned, chosen, [row for row in rows if folds[row.id] == number]))
    return out
