"""Write a sheet on which people label answers without seeing any label, and read the filled sheet.

write_blind_sheet(...)    blind_sample.xlsx: texts in shuffled order, an empty column; the key is another file
read_human_labels(...)    agreement of people, data and model, weighted to the whole test
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from components.evaluation.style.measures import accuracy, confusions, kappa
from qinglan.errors import DataError
from qinglan.evaluation import statistics
from qinglan.evaluation.gates.evaluation_file import read_predictions
from qinglan.evaluation.metrics import Metric
from qinglan.evaluation.pages.blind_sheet import KeyRow, SheetRow, read_key, read_sheet, refuse_other_run, write_sheet
from qinglan.evaluation.pages.report import markdown_table
from qinglan.evaluation.statistics import Columns
from qinglan.style.rows import StyleRow
from qinglan.tables.tables import cell_label

TEXT, LABEL, ALLOWED = "问答", "人工标签", "可选标签"
PAIRS = (("data", "people"), ("model", "people"), ("model", "data"))
SHARE, KAPPA = Metric("agreement"), Metric("Cohen's kappa", "kappa")
Prediction = Mapping[str, Any]
"""A line of predictions.jsonl."""


def write_blind_sheet(
    rows: Sequence[StyleRow], predictions: Sequence[Prediction], sheet: Path, key: Path, count: int, seed: int
) -> int:
    """Draw up to `count` rows, and write the sheet and its key; return how many were drawn.

    Each label is drawn equally often. Within a label, right and wrong predictions of the model are drawn equally
    often. If there are too few of one, more of the others are drawn.
    """
    texts = {row.id: row.input for row in rows}
    allowed = " / ".join(_labels(predictions))
    drawn = stratified_sample(predictions, count, seed)
    sheet_rows = (SheetRow([texts[row["id"]], None, allowed], [texts[row["id"]]], row) for row in drawn)
    return write_sheet(sheet, key, [TEXT, LABEL, ALLOWED], sheet_rows)


def stratified_sample(predictions: Sequence[Prediction], count: int, seed: int) -> list[KeyRow]:
    """Draw up to `count` rows, one from each stratum in turn, and return them in a random order.

    A stratum holds the rows of one label that the model got right, or those that it got wrong.
    """
    strata: dict[str, list[str]] = {}
    for row in sorted(predictions, key=lambda row: Random(f"{seed} {row['id']}").random()):
        right = row["model"]["predicted"] == row["label"]
        strata.setdefault(f"{row['label']} {'agree' if right else 'differ'}", []).append(row["id"])
    sizes = {name: len(ids) for name, ids in strata.items()}
    drawn: list[KeyRow] = []
    while len(drawn) < count and any(strata.values()):
        taken = [(name, ids.pop()) for name, ids in sorted(strata.items()) if ids]
        Random(f"{seed} {len(drawn)}").shuffle(taken)
        drawn += [{"id": row, "stratum": name, "of": sizes[name]} for name, row in taken][: count - len(drawn)]
    Random(f"{seed} order").shuffle(drawn)
    return drawn


def read_human_labels(
    sheet: Path, key: Path, predictions: Path, draws: int = 10_000, seed: int = 0
) -> dict[str, Any]:
    """Return agreement and Cohen's kappa between people, data and model, with intervals. Rows are weighted so that
    they represent the whole test.

    Rows with an empty cell are left out.
    """
    rows = read_key(key, sheet)
    known = {row["id"]: row for row in read_predictions(predictions)}
    labels = _labels(list(known.values()))
    labelled = []
    for row in read_sheet(sheet, rows, [TEXT, LABEL], lambda cells, _: [cells[TEXT]]):
        label = cell_label(row.cells[LABEL] or "")
        if label and label not in labels:
            raise DataError(f"{row.where}: {LABEL} is {label!r}. Write one of {', '.join(labels)}.")
        if label:
            labelled.append((row.key, label))
    if not labelled:
        raise DataError(f"{sheet}: no labels yet. Fill the column {LABEL} with one of {', '.join(labels)}.")
    refuse_other_run(key, (row for row, _ in labelled), known)
    lines = [known[row["id"]] for row, _ in labelled]
    number = {label: at for at, label in enumerate(labels)}
    votes = {
        "people": np.array([number[label] for _, label in labelled]),
        "data": np.array([number[line["label"]] for line in lines]),
        "model": np.array([number[line["model"]["predicted"]] for line in lines]),
    }
    # Rows on which model and label differ were drawn more often than they occur. So each labelled row gets a weight:
    # the number of test rows in its stratum, divided by the number of labelled rows in the stratum.
    filled = Counter(row["stratum"] for row, _ in labelled)
    weights = np.array([row["of"] / filled[row["stratum"]] for row, _ in labelled])
    width = len(labels)
    counts = confusions(votes["data"], votes["people"], width).sum(axis=0).reshape(width, -1).astype(int)
    return {
        "rows": len(labelled),
        "of": len(rows),
        **{
            f"{first}_and_{second}": _agreement(
                confusions(votes[first], votes[second], width) * weights[:, None], width, draws, seed
            )
            for first, second in PAIRS
        },
        "counts": {name: dict(zip(labels, counts[at].tolist(), strict=True)) for name, at in number.items()},
    }


def _labels(predictions: Sequence[Prediction]) -> list[str]:
    return list(predictions[0]["model"]["probabilities"]) if predictions else []


def _agreement(sums: Columns, width: int, draws: int, seed: int) -> dict[str, Any]:
    def statistic(times: Columns) -> Columns:
        counts = (times @ sums).reshape(-1, width, width)
        return np.column_stack([accuracy(counts), kappa(counts)])

    estimates = statistics.bootstrap_estimates(len(sums), statistic, draws, seed)
    return {
        name: {end: None if math.isnan(value) else value for end, value in estimate.items()}
        for name, estimate in zip(("agreement", "kappa"), estimates, strict=True)
    }


def human_labels_markdown(result: Mapping[str, Any]) -> str:
    rows = []
    for first, second in PAIRS:
        estimates = (result[f"{first}_and_{second}"][name] for name in ("agreement", "kappa"))
        cells = (
            f"{metric.number(estimate['value'])} {metric.interval(estimate)}"
            for metric, estimate in zip((SHARE, KAPPA), estimates, strict=True)
        )
        rows.append([f"{first} and {second}", *cells])
    labels = list(result["counts"])
    counts = [[label, *(str(result["counts"][label][name]) for name in labels)] for label in labels]
    parts = [
        f"**{result['rows']} of {result['of']} rows labelled by people**, weighted to the whole test.",
        markdown_table(["", SHARE.name, KAPPA.name], rows),
        markdown_table(["data \\ people", *labels], counts),
    ]
    return "\n\n".join(parts) + "\n"
