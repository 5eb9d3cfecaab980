r"""Reads the files that the style line's stages pass on: a folder of splits, whose rows are labelled answers.

label_mapping.json                    the labels
train.jsonl dev.jsonl test.jsonl      StyleRow
texts.jsonl                           texts without a label, optional: for the tiny base and for distillation
folds.json                            fold of each row, if no test is locked away (test.jsonl is then empty)
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import orjson
from pydantic import Field

from qinglan.config import Config
from qinglan.documents import parse_json_mapping
from qinglan.errors import DataError
from qinglan.files.files import read_jsonl, write_atomically
from qinglan.style.labels import Labels, format_training_text, read_mapping

QUESTION, ANSWER = "用户问题：", "\n回答："
Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
UNLABELLED_FILE = "texts.jsonl"
FOLDS_FILE = "folds.json"
CROSS_FITTED_FILE = "cross_fitted.json"
"""File in a model's folder that holds for each row the prediction of a model that did not learn from the row. It is
one JSON document, since a release holds no JSON lines."""


class StyleRow(Config):
    """One labelled answer."""

    id: str
    input: str = Field(min_length=1)
    r"""用户问题：…\n回答：…"""

    label: str
    """The label's Chinese name."""

    metadata: dict[str, str] = {}
    """The fields `source` and `scene` of the plan, and further columns of the data."""


class UnlabelledText(Config):
    """A text without a label."""

    text: str = Field(min_length=1)


def read_split(folder: Path, split: Split) -> tuple[list[StyleRow], Labels]:
    """Read the rows of a split, and all labels. A DataError names the line of a row whose label is not in the
    mapping."""
    labels = read_mapping(folder)
    path = folder / f"{split}.jsonl"
    rows = []
    for number, row in read_jsonl(path, StyleRow):
        if row.label not in labels.ids:
            raise DataError(f"{path}:{number}: label {row.label!r} is not in the mapping. Prepare the data again.")
        rows.append(row)
    return rows, labels


class CrossFitted(Config):
    """Probabilities for one row, in the order of the labels' ids, by the model that did not learn from the row's
    fold."""

    id: str
    fold: int
    temperature: float
    """Temperature of that model; the probabilities are already divided by it."""

    probabilities: tuple[float, ...]
    question_alone: tuple[float, ...]


def write_folds(folder: Path, folds: Mapping[str, int]) -> None:
    write_atomically(folder / FOLDS_FILE, orjson.dumps(dict(folds)))


def read_folds(folder: Path) -> dict[str, int]:
    """Read the fold of each row, by the row's id; empty if a test is locked away."""
    path = folder / FOLDS_FILE
    if not path.is_file():
        return {}
    folds = parse_json_mapping(path.read_bytes(), str(path))
    if not folds or not all(isinstance(fold, int) and fold >= 0 for fold in folds.values()):
        raise DataError(f"{path}: a fold is a whole number for each row. Prepare the data again.")
    return folds


def refuse_folds(rows: Path) -> None:
    """Raise a DataError if the rows are cross-fitted, because no smaller model can be made or judged from such
    rows."""
    if read_folds(rows):
        raise DataError(
            f"{rows}: cross-fitted rows leave no test for a distilled model, whose teacher learned from all of them. "
            "The larger model is judged by the folds, and released without a smaller one where its gate promotes. "
            "For a smaller one, label rows until a test can be locked away (prepare.cross_fit_below)."
        )


def question_only_text(row: StyleRow) -> str:
    question, answer_mark, _ = row.input.removeprefix(QUESTION).partition(ANSWER)
    if not answer_mark or not row.input.startswith(QUESTION):
        raise DataError(
            f"row {row.id}: its input is not {format_training_text('…', '…')!r}, the form in which a style "
            "model is asked. Prepare the data again."
        )
    return format_training_text(question, "")
