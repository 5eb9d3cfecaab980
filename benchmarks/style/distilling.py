"""The small int8 model beside the model that taught it: size, speed one text at a time, F1."""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import orjson
from rich.table import Table

from benchmarks.style.imbalance import f1
from benchmarks.style.material import Material, aside
from components.training.style.distil import DistilCounts, ModelRow, distil
from qinglan.style.model import EngineName, StyleModel

TEXTS = 200
TURN = 20
"""Texts of one model before it is the next one's turn."""


class Distilled(NamedTuple):
    """Figures of the distil stage, and beside them figures for the same three in its order."""

    counts: DistilCounts
    lines: list[ModelRow]
    texts_per_second: list[float]
    """In turn; the stage times one after the other."""

    dev_f1: list[float]


def measure(material: Material, teacher: Path, folder: Path) -> Distilled:
    student, page = folder / "student", folder / "table.json"
    with aside():
        counts = distil(teacher, material.rows, student, page, folder / "log", material.config.distil)
    opened: list[tuple[Path, EngineName]] = [(teacher, "torch"), (student, "torch"), (student, "onnx")]
    models = [StyleModel.load(*entry) for entry in opened]
    lines = [ModelRow(**entry) for entry in orjson.loads(page.read_bytes())]
    dev = material.split("dev")
    return Distilled(
        counts, lines, one_by_one(models, material.texts("train")[:TEXTS]), [f1(model, dev)[0] for model in models]
    )


def one_by_one(models: Sequence[StyleModel], texts: Sequence[str]) -> list[float]:
    """Texts a second of each, medians of their turns."""
    turns: list[list[float]] = [[] for _ in models]
    for start in range(0, len(texts), TURN):
        for model, seconds in zip(models, turns, strict=True):
            began = time.perf_counter()
            for text in texts[start : start + TURN]:
                model.predict([text])
            seconds.append(time.perf_counter() - began)
    return [round(TURN / statistics.median(seconds), 1) for seconds in turns]


def table(distilled: Distilled) -> Table:
    title = f"one text at a time; int8 differs by {distilled.counts.int8_difference:.4f} at most"
    out = Table("", "MB", "texts a second", "macro-F1, dev", "macro-F1, test", "parameters", title=title)
    for line, speed, dev in zip(distilled.lines, distilled.texts_per_second, distilled.dev_f1, strict=True):
        cells = (
            f"{line.megabytes:.2f}",
            f"{speed:,.0f}",
            f"{dev:.3f}",
            f"{line.macro_f1:.3f}",
            f"{line.parameters:,}",
        )
        out.add_row(line.name, *cells)
    return out
