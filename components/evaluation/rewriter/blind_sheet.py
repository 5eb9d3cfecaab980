"""Write a sheet on which people score rewrites without knowing which system wrote them, and read the filled sheet.

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
    SheetRow,
    read_key,
    read_sheet,
    refuse_other_run,
    write_sheet,
)

LETTERS = "ABCDE"
QUESTION, HISTORY, SCORE = "问题", "历史摘要", "{}评分(1-5)"


def write_blind_sheet(predictions: Path, sheet: Path, key: Path, count: int, seed: int) -> int:
    """Write the sheet and its key for up to `count` rows; return the number of rows. Equal rewrites share a letter,
    so that people score each text once."""
    lines = predictions.read_bytes().splitlines()
    # Rows that the examiner scored come first: only on these can people be compared with the examiner.
    order = sorted(range(len(lines)), key=lambda at: (not _examined(lines[at]), Random(f"{seed} {at}").random()))
    drawn = list[tuple[Json, dict[str, str]]]()
    for at in order[:count]:
        row = orjson.loads(lines[at])
        rewrites = sorted({answer["rewrite"] for answer in row["systems"].values()})
        Random(f"{seed} order {at}").shuffle(rewrites)
        drawn.append((row, dict(zip(LETTERS, rewrites, strict=False))))
    letters = LETTERS[: max((len(texts) for _, texts in drawn), default=0)]
    sheet_rows = []
    for row, texts in drawn:
        writers = {
            letter: [name for name, answer in row["systems"].items() if answer["rewrite"] == text]
            for letter, text in texts.items()
        }
        secret = {
            "id": row["id"],
            "conversation": [row["tenant_id"], row["conversation_id"]],
            "letters": writers,
        }
        cells = [row["question"], row["history_summary"], *(texts.get(letter, "") for letter in letters)]
        cells += [None] * len(letters)
        sheet_rows.append(SheetRow(cells, [row["question"], *texts.values()], secret))
    return write_sheet(sheet, key, [QUESTION, HISTORY, *letters, *map(SCORE.format, letters)], sheet_rows)


def _examined(line: bytes) -> bool:
    return any(answer.get("quality") is not None for answer in orjson.loads(line)["systems"].values())


def read_scores(sheet: Path, key: Path, predictions: Path, draws: int = 10_000, seed: int = 0) -> dict[str, Any]:
    """Return the mean of people's scores for each system, with its interval, and the agreement of people with the
    examiner. Empty cells are left out."""
    rows = read_key(key, sheet)
    letters = sorted({letter for row in rows.values() for letter in row["letters"]})
    filled = read_sheet(
        sheet,
        rows,
        [QUESTION, *letters, *map(SCORE.format, letters)],
        lambda cells, row: [cells[QUESTION], *(cells.get(letter) for letter in row["letters"])],
    )
    scores = [score for row in filled for score in _scores(row)]
    if not scores:
        raise DataError(
            f"{sheet}: no scores yet. Fill the columns {SCORE.format('A')}, {SCORE.format('B')} and so on "
            "with 1 to 5."
        )
    lines = {line["id"]: line for line in read_predictions(predictions)}
    refuse_other_run(key, rows.values(), lines)
    both = []
    for _, row_id, name, score in scores:
        quality = lines[row_id]["systems"].get(name, {}).get("quality")
        if quality is not None:
            both.append((score, quality))
    agreed = statistics.agreement([score for score, _ in both], [quality for _, quality in both])
    names = sorted({name for _, _, name, _ in scores})
    columns = np.array([[score if name == column else math.nan for column in names] for _, _, name, score in scores])
    groups = statistics.group_numbers([conversation for conversation, *_ in scores])
    means = statistics.bootstrap_means(columns, groups, draws, seed)
    return {
        "systems": {name: estimate._asdict() for name, estimate in zip(names, means, strict=True)},
        "agreement": agreed._asdict(),
    }


HumanScore = tuple[tuple[str, ...], str, str, float]
"""Conversation, row, system, score."""


def _scores(row: FilledRow) -> Iterator[HumanScore]:
    for letter, systems in row.key["letters"].items():
        value = row.cells.get(SCORE.format(letter))
        if value in (None, ""):
            continue
        if isinstance(value, str) and value.strip() in {"1", "2", "3", "4", "5"}:
            value = float(value)  # a spreadsheet may keep a score as text
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 5:
            raise DataError(f"{row.where}: {SCORE.format(letter)} is {value!r}. Write a number from 1 to 5.")
        for system in systems:
            yield tuple(row.key["conversation"]), row.key["id"], system, float(value)
