"""A sheet on which people label answers without knowing what anybody called them, and the reading of it.

export(...)               blind_sample.xlsx: texts in shuffled order, an empty column; the key is another file
read_labels_given(...)    how far people, data and model agree, as on the whole test
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import orjson

from components.evaluation.style.measures import accuracy, confusions, kappa
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
from qinglan.style.rows import StyleRow
from qinglan.tables import write_table

TEXT, GIVEN, ALLOWED = "问答", "人工标签", "可选标签"
Prediction = Mapping[str, Any]
"""A line of predictions.jsonl."""


def write_blind_sheet(
    rows: Sequence[StyleRow], predictions: Sequence[Prediction], sheet: Path, key: Path, wanted: int, seed: int
) -> int:
    """Write sheet and key for some rows: as many on which model and label differ as agree, of each label alike."""
    texts = {row.id: row.input for row in rows}
    drawn = stratified_sample(predictions, wanted, seed)
    allowed = " / ".join(_labels(predictions))
    with write_table(sheet, [NUMBER_COLUMN, TEXT, GIVEN, ALLOWED]) as add:
        for number, row in enumerate(drawn, 1):
            add([number, texts[row["id"]], None, allowed])
    write_key(key, (row | {"shown": digest_of_texts(texts[row["id"]])} for row in drawn))
    return len(drawn)


def stratified_sample(predictions: Sequence[Prediction], wanted: int, seed: int) -> list[KeyRow]:
    """Rows from each stratum in turn, in an order that tells nothing; a stratum is a label, and right or wrong."""
    strata: dict[str, list[str]] = {}
    for row in sorted(predictions, key=lambda row: Random(f"{seed} {row['id']}").random()):
        right = row["model"]["predicted"] == row["label"]
        strata.setdefault(f"{row['label']} {'agree' if right else 'differ'}", []).append(row["id"])
    sizes = {name: len(ids) for name, ids in strata.items()}
    drawn: list[KeyRow] = []
    while len(drawn) < wanted and any(strata.values()):
        taken = [(name, ids.pop()) for name, ids in sorted(strata.items()) if ids]
        Random(f"{seed} {len(drawn)}").shuffle(taken)
        drawn += [{"id": one, "stratum": name, "of": sizes[name]} for name, one in taken][: wanted - len(drawn)]
    Random(f"{seed} order").shuffle(drawn)
    return drawn


def read_human_labels(
    sheet: Path, key: Path, predictions: Path, draws: int = 10_000, seed: int = 0
) -> dict[str, Any]:
    """People against data and model: agreement and Cohen's kappa, each as on the whole test, with intervals.

    Rows on which model and label differ were drawn more often than they occur, so each row weighs as many as it
    stands for. Cells left empty are left out.
    """
    kept = read_key(key, sheet)
    known = {row["id"]: row for row in map(orjson.loads, predictions.read_bytes().splitlines())}
    labels = _labels(list(known.values()))
    given = _human_labels(sheet, kept, labels)
    _refuse_strangers(key, given, known)
    ids = [row["id"] for row, _ in given]
    number = {label: at for at, label in enumerate(labels)}
    votes = {
        "people": np.array([number[label] for _, label in given]),
        "data": np.array([number[known[one]["label"]] for one in ids]),
        "model": np.array([number[known[one]["model"]["predicted"]] for one in ids]),
    }
    weights = _weights([row for row, _ in given])
    pairs = (("data", "people"), ("model", "people"), ("model", "data"))
    counts = confusions(votes["data"], votes["people"], len(labels)).sum(axis=0).reshape(len(labels), -1).astype(int)
    return {
        "rows": len(given), "of": len(kept),
        **{
            f"{one}_and_{other}": _agreement(votes[one], votes[other], weights, len(labels), draws, seed)
            for one, other in pairs
        },
        "counts": {name: dict(zip(labels, counts[at].tolist(), strict=True)) for name, at in number.items()},
    }  # fmt: skip


def _human_labels(sheet: Path, kept: Mapping[str, KeyRow], labels: Sequence[str]) -> list[tuple[KeyRow, str]]:
    """What people wrote, with what the key knows of the row."""
    out = []
    for number, cells in read_filled_rows(sheet, [TEXT, GIVEN]):
        row = find_key_row(sheet, number, cells, kept)
        refuse_changed_texts(sheet, number, row, [cells[TEXT]], "its text is not that of the key")
        if not (label := str(cells[GIVEN] or "").strip()):
            continue
        if label not in labels:
            raise DataError(f"{sheet}, row {number}: {GIVEN} is {label!r}. Write one of {', '.join(labels)}.")
        out.append((row, label))
    if not out:
        raise DataError(f"{sheet}: no labels yet. Fill the column {GIVEN} with one of {', '.join(labels)}.")
    return out


def _refuse_strangers(key: Path, given: Sequence[tuple[KeyRow, str]], known: Mapping[str, Any]) -> None:
    if strange := [row["id"] for row, _ in given if row["id"] not in known]:
        raise DataError(
            f"{key}: row {strange[0]} is not in the predictions. Use key and predictions of the same run."
        )


def _labels(predictions: Sequence[Prediction]) -> list[str]:
    return list(predictions[0]["model"]["probabilities"]) if predictions else []


def _weights(rows: Sequence[KeyRow]) -> statistics.Columns:
    """How many rows of the test each stands for."""
    filled: dict[str, int] = {}
    for row in rows:
        filled[row["stratum"]] = filled.get(row["stratum"], 0) + 1
    return np.array([row["of"] / filled[row["stratum"]] for row in rows])


def _agreement(
    one: statistics.Groups, other: statistics.Groups, weights: statistics.Columns, width: int, draws: int, seed: int
) -> dict[str, Any]:
    sums = confusions(one, other, width) * weights[:, None]

    def statistic(drawn: statistics.Columns) -> statistics.Columns:
        counts = drawn.reshape(-1, width, width)
        return np.column_stack([accuracy(counts), kappa(counts)])

    values = statistic(sums.sum(axis=0)[None, :])[0]
    low, high = statistics.bootstrap_intervals(len(sums), lambda times: statistic(times @ sums), draws, seed)
    return {
        name: {"value": _number(values[at]), "low": _number(low[at]), "high": _number(high[at])}
        for at, name in enumerate(("agreement", "kappa"))
    }


def _number(value: Any) -> float | None:
    return None if math.isnan(value) else float(value)
