r"""Files that the style line's stages pass on: a folder of splits, each row an answer with its label.

label_mapping.json                    the labels
train.jsonl dev.jsonl test.jsonl      StyleRow
texts.jsonl                           texts without a label, if there are any: for the tiny base alone
"""

from pathlib import Path
from typing import Literal

from pydantic import Field

from qinglan.config import Config
from qinglan.errors import DataError
from qinglan.files import read_jsonl
from qinglan.style.labels import Labels, read_mapping

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
UNLABELLED_FILE = "texts.jsonl"


class StyleRow(Config):
    """One labelled answer."""

    id: str
    input: str = Field(min_length=1)
    r"""用户问题：…\n回答：…"""

    label: str
    """Its Chinese name."""

    metadata: dict[str, str] = {}
    """The plan's source and scene, and whatever else the data brought."""


class UnlabelledText(Config):
    """A text that nobody labelled."""

    text: str = Field(min_length=1)


def read_split(folder: Path, split: Split) -> tuple[list[StyleRow], Labels]:
    """The rows of a split, and the labels of them all; a label that the mapping lacks is an error that says where."""
    labels = read_mapping(folder)
    path = folder / f"{split}.jsonl"
    rows = []
    for number, row in read_jsonl(path, StyleRow):
        if row.label not in labels.ids:
            raise DataError(f"{path}:{number}: label {row.label!r} is not in the mapping. Prepare the data again.")
        rows.append(row)
    return rows, labels
