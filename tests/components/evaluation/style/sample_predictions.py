"""Made-up answers of a style model and a baseline, and a folder of sample rows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from components.evaluation.style import stage
from components.evaluation.style.baseline import Baseline
from components.evaluation.style.config import EvaluateStyleConfig
from components.evaluation.style.measures import undo_temperature
from components.evaluation.style.results import PredictionTable
from qinglan.evaluation.gates.evaluation_file import Origins
from qinglan.files.files import dump_line
from qinglan.style.labels import DEFAULT_LABELS, format_training_text, write_mapping
from qinglan.style.model import StyleCard
from qinglan.style.rows import StyleRow
from qinglan.text.text import normalise
from standins.samples.style import style_rows

CONFIG = EvaluateStyleConfig(draws=1_000, baseline_c=(1.0, 3.0), blind_rows=20, examples=2)
NAMES = DEFAULT_LABELS.names
NOT_ALIKE = {"rows": 450, "same": 0, "alike": 0, "examples": []}
ORIGINS = Origins(
    {"threshold": 0.8, "parts": {"train": NOT_ALIKE, "dev": NOT_ALIKE}},
    {
        "rows": {"train": "1" * 64, "dev": "2" * 64, "test": "3" * 64}, "model": "4" * 64, "predictions": "5" * 64,
        "parents": {"base_model": "6" * 64, "train": "1" * 64, "dev": "2" * 64, "labels": "7" * 64},
        "code": {"version": "0"},
    },
)  # fmt: skip
"""Origins of a clean test, with every digest."""

SIZES = {"train": 360, "dev": 30, "test": 210}


def sample_rows(count: int = 600, seed: int = 5) -> list[StyleRow]:
    """Distinct rows of the seeded sample."""
    result: dict[str, StyleRow] = {}
    for number, row in enumerate(style_rows(count, seed)):
        text = format_training_text(row.question, row.answer)
        result.setdefault(normalise(text), StyleRow(id=f"r{number}", input=text, label=row.label))
    return list(result.values())


def write_rows(folder: Path, rows: list[StyleRow] | None = None, sizes: Mapping[str, int] = SIZES) -> Path:
    """A folder as the stage before leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    left = rows or sample_rows()
    for name, size in sizes.items():
        (folder / f"{name}.jsonl").write_bytes(b"".join(map(dump_line, left[:size])))
        left = left[size:]
    write_mapping(folder, DEFAULT_LABELS)
    return folder


def answers_of(truth: np.ndarray[Any, Any], right: float, sure: float, seed: int) -> np.ndarray[Any, Any]:
    """Probabilities of one who is right in such a share, and so sure of it."""
    rng = np.random.default_rng(seed)
    width = len(NAMES)
    best = np.where(rng.random(len(truth)) < right, truth, (truth + rng.integers(1, width, len(truth))) % width)
    confidence = np.clip(sure + rng.normal(0, 0.03, len(truth)), 0.3, 0.99)
    out = np.repeat(((1 - confidence) / (width - 1))[:, None], width, axis=1)
    out[np.arange(len(truth)), best] = confidence
    return out


def table(rows: int = 300, model: float = 0.95, baseline: float = 0.8) -> PredictionTable:
    truth = np.arange(rows) % len(NAMES)
    answers = answers_of(truth, model, 0.94, 1)
    systems = {"before": undo_temperature(answers, 1.3), "baseline": answers_of(truth, baseline, 0.8, 2)}
    return PredictionTable(NAMES, truth, np.arange(rows), {"model": answers, **systems})


def evaluation(of: PredictionTable) -> dict[str, Any]:
    """evaluation.json of a table, as a reader finds it."""
    called_for = of.probabilities["model"]
    card = StyleCard(stage="style", temperature=1.3)
    result = stage.build_evaluation(
        of, called_for, Baseline(called_for, 3.0, {"3": 0.8}), card, ORIGINS, DEFAULT_LABELS, CONFIG
    )
    return dict(orjson.loads(orjson.dumps(result)))


def predictions(of: PredictionTable, rows: list[StyleRow]) -> list[dict[str, Any]]:
    return stage.prediction_rows(rows, of, of.probabilities["model"])


def rows_of(of: PredictionTable) -> list[StyleRow]:
    return [
        StyleRow(id=f"t{at}", input=format_training_text(f"问{at}", f"答{at}"), label=of.labels[label])
        for at, label in enumerate(of.truth)
    ]
