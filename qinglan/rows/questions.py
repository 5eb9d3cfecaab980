"""Read a company's spreadsheet, CSV or JSON as typed questions; an unfit row is quarantined with its reason.

A fault of the file (a missing column, merged cells, a repeated id) is a DataError. A fault of a row (no question, a
formula, too long a text) quarantines that row, before anything is paid for it.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from qinglan.config import Config, explain_validation_error
from qinglan.documents import parse_json
from qinglan.errors import DataError, RowError
from qinglan.files.input_paths import path_fault
from qinglan.rows.chat_history import chat_lines, read_history
from qinglan.rows.rows import QuarantinedRow, Question, Split
from qinglan.tables.csv_tables import read_csv, read_text
from qinglan.tables.file_formats import row_format
from qinglan.tables.sheet_reader import Formula
from qinglan.tables.tables import Cells, read_table
from qinglan.terminal import visible
from qinglan.text.text import is_blank, with_line_feeds

QUESTION_LIMIT = 2_000
HISTORY_LIMIT = 20_000
GOLD_LIMIT = 20_000
"""Largest number of characters in a row's cell of passage ids, enough for several hundred ids."""

ID_SEPARATOR = re.compile(r"(?<!\\)[,，;；\n]")
ESCAPED_SEPARATOR = re.compile(r"\\([,，;；])")
SPLIT_NAMES: dict[str, Split] = {
    **dict.fromkeys(("train", "training", "训练", "训练集"), "train"),
    **dict.fromkeys(("dev", "valid", "validation", "val", "验证", "验证集"), "dev"),
    **dict.fromkeys(("test", "测试", "测试集"), "test"),
}
NOT_AVAILABLE = "#n/a"
"""Text of a spreadsheet's look-up that finds nothing; in an optional column it counts as empty."""

SHEET_ERRORS = frozenset(("#ref!", "#value!", "#name?", "#div/0!", "#null!", "#num!"))
"""Texts that a spreadsheet program leaves in a cell whose formula is broken."""

EMPTY_VALUES = frozenset(("", "nan", "none", "null", NOT_AVAILABLE)) | SHEET_ERRORS
"""Texts of cells that count as empty."""


class Columns(Config):
    """Column names of the sheet; only the column `question` is required."""

    question: str = "问题"
    """Name of the column with the text that the user typed."""

    user_profile: str = "用户画像"
    """Name of the column with a description of the user."""

    history_summary: str = "历史摘要"
    """Name of the column with the conversation so far, which holds what the question leaves out. A list of
    `{"role": "user", "content": "..."}` becomes lines of 用户： and 助手：,
    or of User: and Assistant: if it has no Chinese text."""

    id: str = "编号"
    """Name of the column with a row's id, unique in the sheet; without it rows are named by their number."""

    conversation_id: str = "对话编号"
    """Name of the column with the conversation's id. Rows of one conversation are never split between training and
    test."""

    need: str = "检索需求"
    """Name of the column with the user's need, in words that stand alone. If a cell is empty, the judge model writes
    the need."""

    gold: str = "标准段落"
    """Name of the column with the ids of passages that answer the question, separated by commas, semicolons or lines;
    a comma inside an id is written `\\,`."""

    split: str = "划分"
    """Name of the column with train, dev or test (训练, 验证, 测试). If a cell is empty, the convert stage chooses
    the split by conversation."""

    tenant_id: str = "租户"
    """Name of the column with the tenant, for a sheet of several tenants. If it is empty or missing, the profile's
    tenant is used."""


def read_questions(path: Path, columns: Columns, tenant_id: str) -> Iterator[Question | QuarantinedRow]:
    """Yield every row of the file in order: a Question, or a QuarantinedRow with the reason why it is unfit."""
    first_rows: dict[str, str] = {}
    for where, cells in _rows(path, columns):
        number = where.rsplit(" ", 1)[-1]
        row = _question(where, cells, columns, tenant_id, fallback_id=f"row-{number}")
        if (first := first_rows.setdefault(row.id, where)) != where:
            raise DataError(f"{where}: id {row.id!r} is already used by {first}. Ids must be unique; mend one.")
        yield row
    if not first_rows:
        raise DataError(f"{path}: no rows below the header. Is it the right file, and the first sheet?")


def count_rows(path: Path, columns: Columns) -> int:
    """Count the rows, to show progress. Reading the file once more is cheap compared with the calls that follow."""
    return sum(1 for _ in _rows(path, columns))


def _rows(path: Path, columns: Columns) -> Iterator[tuple[str, Cells]]:
    if fault := path_fault(path, "Give the spreadsheet, CSV or JSONL of questions."):
        raise DataError(fault)
    kind = row_format(path)
    names = {field: getattr(columns, field) for field in Columns.model_fields}
    if kind in ("json", "jsonl"):
        for label, where, record in _records(path, kind):
            if not isinstance(record, dict):
                raise DataError(f"{where}: expected an object, found {type(record).__name__}.")
            yield label, _cells(record, names, where)
    else:
        read = read_table if kind == "spreadsheet" else read_csv
        for number, cells in read(path, [columns.question], set(names.values()).__contains__):
            yield f"{path.name} row {number}", cells


def _records(path: Path, kind: str) -> Iterator[tuple[str, str, Any]]:
    """Yield for each record of a JSON list (read whole) or of JSON lines its name, its position in the file, and the
    record."""
    if kind == "json":
        for number, record in enumerate(parse_json(read_text(path), str(path), half_characters=True), 1):
            yield f"{path.name} element {number}", f"{path}: element {number}", record
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                text = line.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}:{number}: byte {error.start} is not UTF-8 (a GBK export?). Save the file as UTF-8 and "
                    "try again."
                ) from error
            try:
                record = parse_json(text, str(path), number, half_characters=True)
            except DataError as error:
                raise DataError(f"{error} A file of questions is .xlsx, CSV or JSONL.") from error
            yield f"{path.name} line {number}", f"{path}:{number}", record


def _cells(record: dict[str, Any], names: dict[str, str], where: str) -> Cells:
    """Turn a JSON record into cells by column name; a DataError if a column has two names or holds an object."""
    cells: dict[str, Any] = {}
    for key, value in record.items():
        column = names.get(key, key)
        if column in cells:
            raise DataError(
                f"{where}: {visible(key)!r} and {visible(column)!r} are one column. Take one of them out."
            )
        turns = read_history(value) if column == names["history_summary"] else None
        items = value if isinstance(value, list) else [value]
        if turns is None and column in names.values() and any(isinstance(item, (dict, list)) for item in items):
            raise DataError(
                f"{where}: {visible(key)!r} holds an object or a list of lists, and a text, a number "
                "or a list of them is needed."
            )
        if turns is not None:
            value = chat_lines(turns)
        elif isinstance(value, list):
            # A separator inside of an id is marked, so that the id stays whole when the cell is split again.
            ids = column == names["gold"]
            value = ";".join(ID_SEPARATOR.sub(r"\\\g<0>", str(item)) if ids else str(item) for item in value)
        cells[column] = value
    return cells


def _question(
    where: str, cells: Cells, columns: Columns, tenant_id: str, fallback_id: str
) -> Question | QuarantinedRow:
    row_id = fallback_id
    try:
        row_id = _label(cells, columns.id) or fallback_id
        return Question(
            id=row_id,
            tenant_id=_label(cells, columns.tenant_id) or tenant_id,
            conversation_id=_label(cells, columns.conversation_id) or row_id,
            question=_question_text(cells, columns.question),
            user_profile=_text(cells, columns.user_profile, HISTORY_LIMIT),
            history_summary=_history(cells, columns.history_summary),
            need=_text(cells, columns.need, QUESTION_LIMIT),
            gold=gold_ids(_text(cells, columns.gold, GOLD_LIMIT)),
            split=_split(where, _label(cells, columns.split)),
        )
    except RowError as unfit:
        reason, detail = unfit.reason, str(unfit)
    except ValidationError as error:
        reason, detail = "invalid", explain_validation_error(error)
    return QuarantinedRow(
        id=row_id,
        tenant_id=tenant_id,
        where=where,
        stage="read",
        reason=reason,
        detail=detail,
        question=str(cells.get(columns.question) or "").encode("utf-8", "replace").decode(),
    )


def _question_text(cells: Cells, column: str) -> str:
    if isinstance(value := cells.get(column), bool):
        raise RowError("not text", f"{column} holds {str(value).upper()}; a question is text.")
    text = _text(cells, column, QUESTION_LIMIT)
    if str(value).strip().lower() == NOT_AVAILABLE:
        raise _sheet_error(column, str(value))
    if not text:
        raise RowError("empty", f"{column} is empty.")
    return text


def _history(cells: Cells, column: str) -> str:
    turns = read_history(cells.get(column))
    return _text(cells | {column: chat_lines(turns)} if turns is not None else cells, column, HISTORY_LIMIT)


def _text(cells: Cells, column: str, limit: int) -> str:
    value = cells.get(column)
    if isinstance(value, Formula):
        raise RowError("formula", f"{column} holds the formula {value[:60]!r}; paste values instead.")
    if isinstance(value, float) and math.isnan(value):
        return ""
    if isinstance(value, float) and value.is_integer():  # sheets make 1001.0 of '1001'
        value = int(value)
    text = "" if value is None else with_line_feeds(str(value)).strip()
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        raise RowError("broken text", f"{column} holds half a character (a lone surrogate).")
    if text.lower() in SHEET_ERRORS:
        raise _sheet_error(column, text)
    if len(text) > limit:
        raise RowError("too long", f"{column} has {len(text)} characters, more than {limit}.")
    return "" if text.lower() in EMPTY_VALUES or is_blank(text) else text


def _sheet_error(column: str, text: str) -> RowError:
    return RowError(
        "sheet error", f"{column} holds the spreadsheet's error {text.strip()}; mend its formula, or empty the cell."
    )


def _label(cells: Cells, column: str) -> str:
    return _text(cells, column, 200)


def gold_ids(text: str) -> tuple[str, ...]:
    """Split a cell into ids; a separator with a backslash before it is part of an id."""
    ids = (ESCAPED_SEPARATOR.sub(r"\1", part).strip() for part in ID_SEPARATOR.split(text))
    return tuple(dict.fromkeys(filter(None, ids)))


def _split(where: str, name: str) -> Split | None:
    if not name:
        return None
    if split := SPLIT_NAMES.get(name.lower()):
        return split
    raise DataError(f"{where}: split {name!r} is none of {', '.join(get_args(Split))}. Mend it, or leave it empty.")
