"""Answers about every row of models that did not learn from it, for data too small to lock a test away.

The rows lie in folds, alike ones in the same. For each fold a model is trained on the others as the released one is,
and asked about the fold's rows. The answers lie in the released model's folder, by row and without its text.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.errors import DataError
from qinglan.files.files import atomic_write
from qinglan.style.model import StyleModel, read_card
from qinglan.style.rows import CROSS_FITTED_FILE, CrossFitted, StyleRow, question_only_text


class Fold(NamedTuple):
    """Rows to learn from, to choose the checkpoint on, and to be asked about."""

    number: int
    train: list[StyleRow]
    dev: list[StyleRow]
    held_out: list[StyleRow]


Train = Callable[[Fold, Path], None]
"""Trains a model on a fold's rows and writes it into a folder."""


def cross_fit(folds: Sequence[Fold], train: Train, work: Path, model: Path) -> None:
    """Train a model for each fold and write what each says of the rows that it did not learn from."""
    answers = list[dict[str, Any]]()
    for fold in folds:
        folder = work / f"fold-{fold.number}"
        train(fold, folder)
        answers += [answer.model_dump(mode="json") for answer in _answers(fold, folder)]
    with atomic_write(model / CROSS_FITTED_FILE) as partial:
        partial.write_bytes(orjson.dumps(answers))


def _answers(fold: Fold, folder: Path) -> Iterator[CrossFitted]:
    model, temperature = StyleModel.load(folder), read_card(folder).temperature
    whole = model.probabilities([row.input for row in fold.held_out])
    alone = model.probabilities([question_only_text(row) for row in fold.held_out])
    for row, answer, question in zip(fold.held_out, whole.tolist(), alone.tolist(), strict=True):
        yield CrossFitted(
            id=row.id, fold=fold.number, temperature=temperature, probabilities=answer, question_alone=question
        )


def make_folds(train: Sequence[StyleRow], dev: Sequence[StyleRow], folds: Mapping[str, int]) -> list[Fold]:
    """The folds in order. Checkpoints are chosen on the rows of dev that are not held out, else on the next fold."""
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
