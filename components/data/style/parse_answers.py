"""Read labelled answers from the plan's JSON, from JSONL, CSV or a spreadsheet. Each fault is named with its row."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from components.data.style.config import StyleColumns
from qinglan.documents import parse_json
from qinglan.errors import DataError
from qinglan.style.labels import Labels, format_training_text
from qinglan.style.rows import ANSWER, QUESTION, StyleRow
from qinglan.tables.csv_tables import read_csv
from qinglan.tables.file_formats import row_format
from qinglan.tables.sheet_reader import Formula
from qinglan.tables.tables import Cells, read_table

SHOWN = 5
INPUT, LABEL, ENGLISH, METADATA = "input", "label", "label_english", "metadata"


RawRow = tuple[str, dict[str, Any]]
"""Position and values of a row before it is checked."""


def read_rows(path: Path, columns: StyleColumns, labels: Labels) -> list[StyleRow]:
    """Read and check every row. All faults are reported in one DataError, which shows the first few."""
    kind = row_format(path)
    if kind in ("spreadsheet", "csv"):
        read = read_table if kind == "spreadsheet" else read_csv
        raw_rows = _of_table(read(path, [columns.label]), columns)
    else:
        raw_rows = _of_json(path)
    rows, wrong = [], []
    for number, (where, values) in enumerate(raw_rows, 1):
        faults = list(_faults(values, labels))
        wrong += [f"{where}: {fault}" for fault in faults]
        if not faults:
            metadata = {str(name): str(value) for name, value in (values.get(METADATA) or {}).items()}
            label = values[LABEL].strip()
            rows.append(StyleRow(id=f"s{number:06d}", input=values[INPUT], label=label, metadata=metadata))
    if wrong:
        more = [f"... and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
        raise DataError(f"{path}: {len(wrong)} faults. Mend them and run again.", *wrong[:SHOWN], *more)
    if not rows:
        raise DataError(f"{path}: no rows. Give answers with a label each, as in components/data/style/README.md.")
    return rows


def _of_json(path: Path) -> Iterator[RawRow]:
    try:
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf").strip()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}. Name the labelled answers: JSON or .xlsx.") from error
    lines = [line for line in enumerate(content.splitlines(), 1) if line[1].strip()]
    try:
        if content.startswith(b"["):
            values = parse_json(content, str(path))
        else:
            values = [parse_json(line, str(path), number) for number, line in lines]
    except DataError as error:
        raise DataError(f"{error} Save it as UTF-8 JSON, or as .xlsx.") from error
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise DataError(f"{path}: row {number} is no object. Each row is {{input, label, ...}}.")
        yield f"row {number}", value


def _of_table(rows: Iterator[tuple[int, Cells]], columns: StyleColumns) -> Iterator[RawRow]:
    named = set(columns.model_dump().values())
    for number, cells in rows:
        values = {name: value for name, value in cells.items() if value not in (None, "")}
        if columns.input not in values and (columns.question in values or columns.answer in values):
            parts = (values.get(columns.question, ""), values.get(columns.answer, ""))
            formula = next((part for part in parts if isinstance(part, Formula)), None)
            text: Any = formula if formula is not None else format_training_text(*map(str, parts))
        else:
            text = values.get(columns.input)
        metadata = {name: str(value) for name, value in values.items() if name not in named}
        label, english = values.get(columns.label), values.get(columns.english)
        yield f"row {number}", {INPUT: text, LABEL: label, ENGLISH: english, METADATA: metadata}


def _faults(values: dict[str, Any], labels: Labels) -> Iterator[str]:
    text, name, english = values.get(INPUT), _stripped(values.get(LABEL)), _stripped(values.get(ENGLISH))
    if isinstance(text, Formula):
        yield "a formula stands where a text should; paste it as a value"
    elif not isinstance(text, str) or not text.strip():
        yield f"no {INPUT}"
    elif not text.startswith(QUESTION) or not text.partition(ANSWER)[2].strip():
        yield f"{INPUT} is not of the form {QUESTION}…\\n{ANSWER.strip()}…, with an answer"
    label = labels.by_name(name) if isinstance(name, str) else None
    if label is None:
        yield f"{LABEL} is {name!r}; there are {'、'.join(labels.names)}"
    elif english not in (None, "", label.english):
        yield f"{LABEL} {name} is {label.english}, and {ENGLISH} says {english!r}; one of them is wrong"
    if not isinstance(values.get(METADATA) or {}, dict):
        yield f"{METADATA} is no object"


def _stripped(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value
