"""Read a file of answers (.jsonl, .json, .csv, .xlsx) in chunks, and write its rows with the style model's
predictions.

A row that cannot be read as an answer is written with its fault instead of a label, so that no row is lost.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.documents import parse_json
from qinglan.errors import ConfigError, DataError
from qinglan.files.files import atomic_write, count_lines
from qinglan.files.input_paths import path_fault
from qinglan.style.labels import format_training_text
from qinglan.style.model import StyleModel
from qinglan.style.predict import Prediction
from qinglan.tables.csv_tables import read_csv, read_text
from qinglan.tables.file_formats import is_spreadsheet, row_format
from qinglan.tables.sheet_reader import Formula
from qinglan.tables.tables import read_table, write_table
from qinglan.terminal.progress import progress

CHUNK = 512
TEXT_COLUMNS = ("text", "input")
QUESTION_ANSWER_COLUMNS = (("问题", "回答"), ("question", "answer"))
USUAL_COLUMNS = {*TEXT_COLUMNS, *(name for names in QUESTION_ANSWER_COLUMNS for name in names)}
INPUT_HINT = "give `text` (or `input`) in the training form, or 问题 and 回答, or question and answer"

Row = dict[str, Any]
AddRow = Callable[[Row], object]


class PredictedCounts(NamedTuple):
    rows: int
    predicted: int
    faults: tuple[str, ...]
    """The first few faults, with their rows."""


SHOWN = 5


def target_file(source: Path, out: Path | None) -> Path:
    """Return the file to write: `out`, or a file beside the source. `out` must end in .jsonl or .xlsx."""
    if fault := path_fault(source, "Name a file of answers."):
        raise DataError(fault)
    if out is None:
        return source.with_name(f"{source.stem}-style{'.xlsx' if is_spreadsheet(source) else '.jsonl'}")
    if out.suffix not in (".jsonl", ".xlsx"):
        raise ConfigError(f"--out {out}: ends neither in .jsonl nor in .xlsx. Give it one of these endings.")
    return out


def predict_file(model: StyleModel, source: Path, target: Path) -> PredictedCounts:
    """Predict every row of the source, and write the target in the format that its ending names."""
    rows, predicted, faults, names = 0, 0, list[str](), model.labels.names
    # Columns of an earlier prediction are replaced.
    replaced = {"predicted_label", "confidence", "probabilities", "fault", *map(_column, names)}
    total = None if is_spreadsheet(source) else count_lines(source)
    with progress("style", total) as tick, _writer(target, names, _columns(source, target)) as add:
        read = _read(source)
        while chunk := list(islice(read, CHUNK)):
            for where, row, prediction, fault in _predicted(model, chunk):
                inputs = {name: value for name, value in row.items() if name not in replaced}
                add({**inputs, **_flat(prediction, names, target), **({"fault": fault} if fault else {})})
                rows, predicted = rows + 1, predicted + (not fault)
                if fault and len(faults) < SHOWN:
                    faults.append(f"{where}: {fault}")
                tick()
    return PredictedCounts(rows, predicted, tuple(faults))


def row_text(row: Row) -> str:
    """Return the row's text in the training form; a DataError if the row has no text."""
    for names in [(name,) for name in TEXT_COLUMNS] + list(QUESTION_ANSWER_COLUMNS):
        if all(row.get(name) not in (None, "") for name in names):
            values = [row[name] for name in names]
            if any(isinstance(value, Formula | bool) or not isinstance(value, str | int | float) for value in values):
                raise DataError(f"{names[0]} is no plain text; paste it as a value")
            text = format_training_text(*map(str, values)) if len(values) == 2 else str(values[0])
            if not text.strip():
                raise DataError(f"{names[0]} is empty; {INPUT_HINT}")
            return text
    raise DataError(f"no text; {INPUT_HINT}")


def _predicted(
    model: StyleModel, chunk: Sequence[tuple[str, Row]]
) -> Iterator[tuple[str, Row, Prediction | None, str]]:
    texts, faults = [], {}
    for at, (_, row) in enumerate(chunk):
        try:
            texts.append(row_text(row))
        except DataError as error:
            faults[at] = str(error)
    predictions = iter(model.predict(texts))
    for at, (where, row) in enumerate(chunk):
        yield where, row, None if at in faults else next(predictions), faults.get(at, "")


def _flat(prediction: Prediction | None, names: Sequence[str], target: Path) -> Row:
    if prediction is None:
        return {}
    if target.suffix == ".jsonl":
        return dict(prediction)
    probabilities = {_column(name): round(prediction["probabilities"][name], 6) for name in names}
    best = {"predicted_label": prediction["predicted_label"], "confidence": round(prediction["confidence"], 6)}
    return {**best, **probabilities}


def _column(name: str) -> str:
    return f"p({name})"


def _read(source: Path) -> Iterator[tuple[str, Row]]:
    kind = row_format(source)
    if kind in ("spreadsheet", "csv"):
        read = read_table if kind == "spreadsheet" else read_csv
        for number, cells in read(source, (), USUAL_COLUMNS.__contains__):
            yield f"row {number}", dict(cells)
        return
    if kind == "json":  # one list, such as the training data of the original plan
        rows = parse_json(read_text(source), str(source))
        if not isinstance(rows, list):
            raise DataError(f"{source}: a JSON list of rows belongs here, and this is {type(rows).__name__}.")
        for number, row in enumerate(rows, 1):
            yield f"element {number}", row if isinstance(row, dict) else {"raw": row}
        return
    with source.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield f"line {number}", _object(line)


def _object(line: bytes) -> Row:
    """Parse a line as a JSON object. Any other line becomes a row with the line in `raw`, so it has no text to
    predict."""
    try:
        row = parse_json(line, "line")
    except DataError:
        row = None
    return row if isinstance(row, dict) else {"raw": line.decode("utf-8", "replace").strip()}


def _columns(source: Path, target: Path) -> list[str]:
    """List all columns that occur in the source's rows, for the header of a sheet; empty if the target is no
    sheet."""
    if target.suffix != ".xlsx":
        return []
    return list(dict.fromkeys(name for _, row in _read(source) for name in row))


@contextmanager
def _writer(target: Path, names: Sequence[str], columns: Sequence[str]) -> Iterator[AddRow]:
    if target.suffix == ".jsonl":
        with atomic_write(target) as partial, partial.open("wb") as file:
            yield lambda row: file.write(orjson.dumps(row, default=str) + b"\n")
        return
    added = ["predicted_label", "confidence", *map(_column, names), "fault"]
    header = [*(name for name in columns if name not in added), *added]

    def cell(value: Any) -> Any:
        return value if value is None or isinstance(value, str | int | float | bool) else orjson.dumps(value).decode()

    with write_table(target, header) as add:
        yield lambda row: add([cell(row.get(name)) for name in header])
