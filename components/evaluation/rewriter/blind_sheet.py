"""A sheet that people score without knowing who wrote what, and the reading of it.

export(...)        blind_sample.xlsx: question, history, rewrites A B C in shuffled order; the key is another file
read_scores(...)   per-system means with intervals, and the people's agreement with the examiner
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import orjson

from qinglan import statistics
from qinglan.blind_sheet import (
    NUMBER_COLUMN,
    KeyRow,
    digest_of_texts,
    find_key_row,
    read_filled_rows,
    read_key,
    refuse_changed_texts,
    write_key,
)
from qinglan.errors import DataError
from qinglan.tables import Cells, write_table

LETTERS = "ABCDE"
QUESTION, SCORE = "问题", "{}评分(1-5)"


def write_blind_sheet(predictions: Path, sheet: Path, key: Path, wanted: int, seed: int) -> int:
    """Write sheet and key for some rows; equal rewrites share a letter, so that nobody scores one twice."""
    rows = list(_picked(predictions, wanted, seed))
    width = max((len(row["letters"]) for row in rows), default=0)
    letters = LETTERS[:width]
    columns = [NUMBER_COLUMN, QUESTION, "历史摘要", *letters, *(SCORE.format(letter) for letter in letters)]
    with write_table(sheet, columns) as add:
        for number, row in enumerate(rows, 1):
            texts = [row["texts"].get(letter, "") for letter in letters]
            add([number, row["question"], row["history"], *texts, *[None] * width])
    write_key(
        key,
        (
            {name: row[name] for name in ("id", "conversation", "letters")}
            | {"shown": digest_of_texts(*_visible_cells(row["question"], row["texts"]))}
            for row in rows
        ),
    )
    return len(rows)


def _picked(predictions: Path, wanted: int, seed: int) -> Iterator[KeyRow]:
    """Examined rows first, since only there people and examiner can be compared."""
    lines = predictions.read_bytes().splitlines()
    order = sorted(range(len(lines)), key=lambda at: (not _examined(lines[at]), Random(f"{seed} {at}").random()))
    for at in order[:wanted]:
        yield _shuffled(orjson.loads(lines[at]), Random(f"{seed} order {at}"))


def _examined(line: bytes) -> bool:
    return any(one.get("quality") is not None for one in orjson.loads(line)["systems"].values())


def _shuffled(row: KeyRow, random: Random) -> KeyRow:
    by_text: dict[str, list[str]] = {}
    for name, one in row["systems"].items():
        by_text.setdefault(one["rewrite"], []).append(name)
    texts = sorted(by_text)
    random.shuffle(texts)
    lettered = dict(zip(LETTERS, texts, strict=False))
    return {
        "id": row["id"], "conversation": [row["tenant_id"], row["conversation_id"]], "question": row["question"],
        "history": row["history_summary"], "texts": lettered,
        "letters": {letter: by_text[text] for letter, text in lettered.items()},
    }  # fmt: skip


def _visible_cells(question: Any, texts: Mapping[str, Any]) -> list[Any]:
    """What people see of a row."""
    return [question, *texts.values()]


def read_scores(sheet: Path, key: Path, predictions: Path, draws: int = 10_000, seed: int = 0) -> dict[str, Any]:
    """What people gave each system, and how far they agree with the examiner; cells left empty are left out."""
    kept = read_key(key, sheet)
    letters = sorted({letter for row in kept.values() for letter in row["letters"]})
    rows = read_filled_rows(sheet, [QUESTION, *letters, *map(SCORE.format, letters)])
    given = [one for number, cells in rows for one in _scores(sheet, number, cells, kept)]
    if not given:
        raise DataError(f"{sheet}: no scores yet. Fill the columns {SCORE.format('A')} ... with 1 to 5.")
    examined = _examiner_scores(predictions)
    pairs = [(score, other) for _, row, name, score in given if (other := examined.get((row, name))) is not None]
    agreed = statistics.agreement([one for one, _ in pairs], [other for _, other in pairs])
    names = sorted({name for _, _, name, _ in given})
    column = np.array([[score if name == one else math.nan for one in names] for _, _, name, score in given])
    found = statistics.bootstrap_means(column, statistics.group_numbers([c for c, *_ in given]), draws, seed)
    return {
        "systems": {name: estimate._asdict() for name, estimate in zip(names, found, strict=True)},
        "agreement": agreed._asdict(),
    }


HumanScore = tuple[tuple[str, ...], str, str, float]
"""Conversation, row, system, score."""


def _scores(sheet: Path, number: int, cells: Cells, key: Mapping[str, KeyRow]) -> Iterator[HumanScore]:
    row = find_key_row(sheet, number, cells, key)
    seen = _visible_cells(cells[QUESTION], {letter: cells.get(letter) for letter in row["letters"]})
    refuse_changed_texts(sheet, number, row, seen, "question or rewrites are not those of the key")
    for letter, systems in row["letters"].items():
        value = _number(cells.get(SCORE.format(letter)))
        if value in (None, ""):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 5:
            raise DataError(
                f"{sheet}, row {number}: {SCORE.format(letter)} is {value!r}. Write a number from 1 to 5."
            )
        for system in systems:
            yield tuple(row["conversation"]), row["id"], system, float(value)


def _number(value: Any) -> Any:
    """A score that a spreadsheet keeps as text is a score all the same."""
    return float(value) if isinstance(value, str) and value.strip() in {"1", "2", "3", "4", "5"} else value


def _examiner_scores(predictions: Path) -> dict[tuple[str, str], float]:
    out = {}
    for line in predictions.read_bytes().splitlines():
        row = orjson.loads(line)
        for name, one in row["systems"].items():
            if one.get("quality") is not None:
                out[row["id"], name] = one["quality"]
    return out
