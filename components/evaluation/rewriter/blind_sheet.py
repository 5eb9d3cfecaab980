"""A sheet that people score without knowing who wrote what, and the reading of it.

write_blind_sheet(...)  blind_sample.xlsx: question, history, rewrites A B C in shuffled order; its key beside it
read_scores(...)        per-system means with intervals, and the people's agreement with the examiner
"""

import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import orjson

from qinglan.errors import DataError
from qinglan.evaluation import statistics
from qinglan.evaluation.gates.evaluation_file import Json, read_predictions
from qinglan.evaluation.pages.blind_sheet import (
    FilledRow,
    KeyRow,
    SheetRow,
    read_key,
    read_sheet,
    refuse_other_run,
    write_sheet,
)
from qinglan.tables.tables import Cells

LETTERS = "ABCDE"
QUESTION, HISTORY, SCORE = "问题", "历史摘要", "{}评分(1-5)"


def write_blind_sheet(predictions: Path, sheet: Path, key: Path, count: int, seed: int) -> int:
    """Write sheet and key for some rows; equal rewrites share a letter, so that nobody scores one twice."""
    rows = list(_picked(predictions, count, seed))
    letters = LETTERS[: max((len(texts) for _, texts in rows), default=0)]
    return write_sheet(
        sheet, key, [QUESTION, HISTORY, *letters, *map(SCORE.format, letters)],
        [
            SheetRow(
                [row["question"], row["history_summary"], *(texts.get(letter, "") for letter in letters),
                 *[None] * len(letters)],
                [row["question"], *texts.values()],
                {
                    "id": row["id"], "conversation": [row["tenant_id"], row["conversation_id"]],
                    "letters": {letter: _writers(row, text) for letter, text in texts.items()},
                },
            )
            for row, texts in rows
        ],
    )  # fmt: skip


def _writers(row: Json, text: str) -> list[str]:
    return [name for name, answer in row["systems"].items() if answer["rewrite"] == text]


def _picked(predictions: Path, count: int, seed: int) -> Iterator[tuple[Json, dict[str, str]]]:
    """Rows and their rewrites by letter; examined rows first, as only there people and examiner can be compared."""
    lines = predictions.read_bytes().splitlines()
    order = sorted(range(len(lines)), key=lambda at: (not _examined(lines[at]), Random(f"{seed} {at}").random()))
    for at in order[:count]:
        row = orjson.loads(lines[at])
        texts = sorted({answer["rewrite"] for answer in row["systems"].values()})
        Random(f"{seed} order {at}").shuffle(texts)
        yield row, dict(zip(LETTERS, texts, strict=False))


def _examined(line: bytes) -> bool:
    return any(answer.get("quality") is not None for answer in orjson.loads(line)["systems"].values())


def read_scores(sheet: Path, key: Path, predictions: Path, draws: int = 10_000, seed: int = 0) -> dict[str, Any]:
    """People's scores of each system, and how far they agree with the examiner; cells left empty are left out."""
    rows = read_key(key, sheet)
    letters = sorted({letter for row in rows.values() for letter in row["letters"]})
    filled = read_sheet(sheet, rows, [QUESTION, *letters, *map(SCORE.format, letters)], _shown)
    scores = [score for row in filled for score in _scores(row)]
    if not scores:
        raise DataError(
            f"{sheet}: no scores yet. Fill the columns {SCORE.format('A')}, {SCORE.format('B')} and so on "
            "with 1 to 5."
        )
    lines = list(read_predictions(predictions))
    refuse_other_run(key, rows.values(), {line["id"] for line in lines})
    examiner = {
        (row["id"], name): answer["quality"]
        for row in lines
        for name, answer in row["systems"].items()
        if answer.get("quality") is not None
    }
    both = [(score, examiner[row, name]) for _, row, name, score in scores if (row, name) in examiner]
    agreed = statistics.agreement([score for score, _ in both], [score for _, score in both])
    names = sorted({name for _, _, name, _ in scores})
    columns = np.array([[score if name == column else math.nan for column in names] for _, _, name, score in scores])
    groups = statistics.group_numbers([conversation for conversation, *_ in scores])
    means = statistics.bootstrap_means(columns, groups, draws, seed)
    return {
        "systems": {name: estimate._asdict() for name, estimate in zip(names, means, strict=True)},
        "agreement": agreed._asdict(),
    }


def _shown(cells: Cells, row: KeyRow) -> list[Any]:
    return [cells[QUESTION], *(cells.get(letter) for letter in row["letters"])]


HumanScore = tuple[tuple[str, ...], str, str, float]
"""Conversation, row, system, score."""


def _scores(row: FilledRow) -> Iterator[HumanScore]:
    for letter, systems in row.key["letters"].items():
        value = _number(row.cells.get(SCORE.format(letter)))
        if value in (None, ""):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 5:
            raise DataError(f"{row.where}: {SCORE.format(letter)} is {value!r}. Write a number from 1 to 5.")
        for system in systems:
            yield tuple(row.key["conversation"]), row.key["id"], system, float(value)


def _number(value: Any) -> Any:
    """A score that a spreadsheet keeps as text is a score all the same."""
    return float(value) if isinstance(value, str) and value.strip() in {"1", "2", "3", "4", "5"} else value
