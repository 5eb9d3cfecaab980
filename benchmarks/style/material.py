"""The material of every measurement here: a sample of its own seed, prepared, a tiny base, and a model of it."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from components.data.style.stage import prepare
from components.training.base.stage import text_base
from components.training.style.stage import train_style
from pipelines.lines.config import load_style_config
from pipelines.lines.style import StyleRunConfig
from qinglan.style.labels import MAPPING_FILE
from qinglan.style.rows import Split, StyleRow, read_split
from standins.samples.style import write_style_sample

SEED = 100


class Material(NamedTuple):
    """Files of one sample."""

    config: StyleRunConfig
    rows: Path
    base: Path
    folder: Path

    def split(self, name: Split) -> list[StyleRow]:
        return read_split(self.rows, name)[0]

    def texts(self, name: Split) -> list[str]:
        return [row.input for row in self.split(name)]


class Opened(NamedTuple):
    """A model as the plan's functions take it."""

    model: Any
    tokenizer: Any
    id_to_label: dict[str, str]

    @classmethod
    def of(cls, folder: Path) -> "Opened":
        """As the plan opens it."""
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        mapping = orjson.loads((folder / MAPPING_FILE).read_bytes())
        model = AutoModelForSequenceClassification.from_pretrained(folder)
        return cls(model, AutoTokenizer.from_pretrained(folder), mapping["id_to_label"])


def make(folder: Path, rows: int, **shares: float) -> Material:
    """The sample, its splits and a base model; the base is kept in the cache for the next run."""
    write_style_sample(folder / "data", rows, SEED)
    config = load_style_config("laptop", labelled=folder / "data", prepare=shares)
    with aside():
        prepare(config.labelled, folder / "rows", folder / "page.html", config.prepare)
        text_base(folder / "rows", folder / "base", config.base)
    return Material(config, folder / "rows", folder / "base", folder)


def train(material: Material) -> Path:
    """The model that the laptop profile makes, kept in the cache as well."""
    with aside():
        train_style(
            material.base, material.rows, material.folder / "model", material.folder / "log", material.config.style
        )
    return material.folder / "model"


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """The progress of stages goes to stderr: a benchmark's stdout is its tables."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
