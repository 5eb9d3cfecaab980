"""A sheet that people score without knowing who wrote what, and the reading of it.

export(...)        blind_sample.xlsx: question, history, rewrites A B C in shuffled order; the key is another file
read_scores(...)   per-system means with intervals, and the people's agreement with the examiner
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import orjson

from components.evaluation.rewriter import statistics
from qinglan.errors import DataError
from qinglan.files import replaced, sha256_text
from qinglan.tables import Cells, read_table, safe_cell, write_table
from qinglan.text import one_line

LETTERS = "ABCDE"
NUMBER, QUESTION, SCORE = "编号", "问题", "{}评分(1-5)"
Key = dict[str, Any]


def export(predictions: Path, sheet: Path, key: Path, wanted: int, seed: int) -> int:
    """Write sheet and key for some rows; equal rewrites share a letter, so that nobody scores one twice."""
    rows = list(_picked(predictions, wanted, seed))
    width = max((len(row["letters"]) for row in rows), default=0)
    letters = LETTERS[:width]
    columns = [NUMBER, QUESTION, "历史摘要", *letters, *(SCORE.format(letter) for letter in letters)]
    with write_table(sheet, columns) as add:
        for number, row in enumerate(rows, 1):
            texts = [row["texts"].get(letter, "") for letter in letters]
            add([number, row["question"], row["history"], *texts, *[None] * width])
    kept = {
        str(number): {name: row[name] for name in ("id", "conversation", "letters")} | {"shown": _shown_digest(row)}
        for number, row in enumerate(rows, 1)
    }
    with replaced(key) as partial:
        partial.write_bytes(orjson.dumps(kept, option=orjson.OPT_INDENT_2))
    return len(rows)


def _picked(predictions: Path, wanted: int, seed: int) -> Iterator[Key]:
    """Examined rows first, since only there people and examiner can be compared."""
    lines = predictions.read_bytes().splitlines()
    order = sorted(range(len(lines)), key=lambda at: (not _examined(lines[at]), Random(f"{seed} {at}").random()))
    for at in order[:wanted]:
        yield _shuffled(orjson.loads(lines[at]), Random(f"{seed} order {at}"))


def _examined(line: bytes) -> bool:
    return any(one.get("quality") is not None for one in orjson.loads(line)["systems"].values())


def _shuffled(row: Key, random: Random) -> Key:
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


def _shown_digest(row: Key) -> str:
    """Of what people see of a row: a key that is another sheet's would give their scores to others."""
    return sha256_text(*(one_line(str(safe_cell(text or ""))) for text in (row["question"], *row["texts"].values())))


def read_scores(sheet: Path, key: Path, predictions: Path, draws: int = 10_000, seed: int = 0) -> dict[str, Any]:
    """What people gave each system, and how far they agree with the examiner; cells left empty are left out."""
    if not sheet.is_file():
        raise DataError(f"{sheet}: no such file. Give the filled blind sample.")
    kept = _read_key(key)
    letters = sorted({letter for row in kept.values() for letter in row["letters"]})
    columns = [NUMBER, QUESTION, *letters, *map(SCORE.format, letters)]
    rows = list(read_table(sheet, columns))
    _check_numbers(sheet, rows)
    given = [one for number, cells in rows for one in _scores(sheet, number, cells, kept)]
    if not given:
        raise DataError(f"{sheet}: no scores yet. Fill the columns {SCORE.format('A')} ... with 1 to 5.")
    examined = _examiner_scores(predictions)
    pairs = [(score, other) for _, row, name, score in given if (other := examined.get((row, name))) is not None]
    agreed = statistics.agreement([one for one, _ in pairs], [other for _, other in pairs])
    names = sorted({name for _, _, name, _ in given})
    column = np.array([[score if name == one else math.nan for one in names] for _, _, name, score in given])
    found = statistics.estimates(column, statistics.groups([c for c, *_ in given]), draws, seed)
    return {
        "systems": {name: estimate._asdict() for name, estimate in zip(names, found, strict=True)},
        "agreement": agreed._asdict(),
    }


Given = tuple[tuple[str, ...], str, str, float]
"""Conversation, row, system, score."""


def _scores(sheet: Path, number: int, cells: Cells, key: Mapping[str, Key]) -> Iterator[Given]:
    name = str(cells[NUMBER])
    if (row := key.get(name)) is None:
        raise DataError(
            f"{sheet}, row {number}: {NUMBER} {name!r} is not in the key. Use the key of this very sheet."
        )
    seen = {"question": cells[QUESTION], "texts": {letter: cells.get(letter) for letter in row["letters"]}}
    if _shown_digest(seen) != row["shown"]:
        raise DataError(
            f"{sheet}, row {number}: question or rewrites are not those of the key. Use the key of this very sheet, "
            "and leave its texts as they are."
        )
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


def _check_numbers(sheet: Path, rows: Sequence[tuple[int, Cells]]) -> None:
    numbers = Counter(str(cells[NUMBER]) for _, cells in rows)
    if twice := [number for number, times in numbers.items() if times > 1]:
        raise DataError(f"{sheet}: {NUMBER} {', '.join(twice)} stands there twice. Leave the rows as they were.")


def _read_key(path: Path) -> dict[str, Key]:
    try:
        return dict(orjson.loads(path.read_bytes()))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}. The evaluate stage writes the key beside the sheet.") from None
    except (ValueError, TypeError):
        raise DataError(
            f"{path}: not the key of a blind sample, which is JSON that the evaluate stage writes."
        ) from None


def _examiner_scores(predictions: Path) -> dict[tuple[str, str], float]:
    out = {}
    for line in predictions.read_bytes().splitlines():
        row = orjson.loads(line)
        for name, one in row["systems"].items():
            if one.get("quality") is not None:
                out[row["id"], name] = one["quality"]
    return out
