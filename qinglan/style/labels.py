"""Reads and writes the labels of a style model, and builds its input text."""

from pathlib import Path
from typing import Any, Self

import orjson
from pydantic import Field, model_validator

from qinglan.config import Config, parse_as
from qinglan.documents import parse_yaml
from qinglan.errors import ConfigError
from qinglan.files.files import read_json_mapping, write_atomically
from qinglan.files.plain_files import read_plain

DEFAULT_FILE = Path(__file__).parent / "labels.yaml"
MAPPING_FILE = "label_mapping.json"


class Label(Config):
    """One style."""

    name: str = Field(min_length=1)
    """The Chinese name, as in data and answers."""

    english: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    id: int = Field(ge=0)
    description: str = ""


class Labels(Config):
    """All styles of a model, in the order of their ids."""

    labels: tuple[Label, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for what, values in (("name", self.names), ("english", [label.english for label in self.labels])):
            if twice := {value for value in values if list(values).count(value) > 1}:
                raise ValueError(f"{what} {min(twice)!r} is used twice")
        if [label.id for label in self.labels] != list(range(len(self.labels))):
            raise ValueError(f"ids must be 0 to {len(self.labels) - 1}, in this order")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(label.name for label in self.labels)

    @property
    def ids(self) -> dict[str, int]:
        return {label.name: label.id for label in self.labels}

    def by_name(self, name: str) -> Label | None:
        return next((label for label in self.labels if label.name == name), None)


def read_labels(path: Path = DEFAULT_FILE) -> Labels:
    """Read the labels from a mapping file: a YAML or JSON list of name, english, id, description."""
    try:
        values = parse_yaml(read_plain(path).decode(), f"labels: {path}")
    except OSError as error:
        raise ConfigError(
            f"labels: {path}: {error.strerror}. Name a mapping file, as {DEFAULT_FILE.name}."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"labels: {path}: not readable as YAML: {' '.join(str(error).split())}") from error
    return parse_as(Labels, {"labels": values}, f"labels: {path}")


DEFAULT_LABELS = read_labels()


def write_mapping(folder: Path, labels: Labels) -> None:
    """Write label_mapping.json into a model's folder, in the form of the original plan."""
    mapping: dict[str, Any] = {
        "id_to_label": {str(label.id): label.name for label in labels.labels},
        "label_to_id": labels.ids,
        "labels": [label.model_dump() for label in labels.labels],
    }
    write_atomically(folder / MAPPING_FILE, orjson.dumps(mapping, option=orjson.OPT_INDENT_2))


def read_mapping(folder: Path) -> Labels:
    mapping = read_json_mapping(folder / MAPPING_FILE, "A style model is written by the style stage.")
    return Labels.parse({"labels": mapping.get("labels")}, str(folder / MAPPING_FILE))


def format_training_text(question: str, answer: str) -> str:
    """Join question and answer in the form that all texts have in training and prediction."""
    return f"用户问题：{question}\n回答：{answer}"
