"""Read a sheet of questions into records, one for each question: .xlsx, CSV, JSON, JSONL or exported chats."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from commands.init.chat_messages import (
    TEXT_NAMES,
    Record,
    chat_questions,
    message_columns,
    message_questions,
)
from commands.init.guess_columns import (
    CONVERSATION_NAMES,
    NAMES,
    plain_name,
    refuse_missing_columns,
    with_names,
)
from commands.init.instruction_files import instruction_question, is_instruction, shared_instruction
from qinglan.documents import parse_json
from qinglan.errors import DataError
from qinglan.files.input_paths import path_fault
from qinglan.rows.chat_history import Turn, read_turns
from qinglan.tables.csv_tables import decode_text, read_csv
from qinglan.tables.file_formats import UNCOMPRESSED_LIMIT, row_format
from qinglan.tables.header_rows import IsName
from qinglan.tables.tables import read_table, sheet_names
from qinglan.terminal import visible

CHAT_ID_KEYS = ("id", "conversation_id", "session_id", "对话编号")
SHOWN_SHEETS = 5
"""Highest number of unread sheets of a workbook that a remark names."""

INSTRUCTIONS = ("system", "tools")
"""Keys of ShareGPT files with the model's instructions, which may be long and are no part of the chat."""

OF_ALL_QUESTIONS = ("user_profile", "split", "tenant_id")
"""Fields of a conversation's record that hold for each of its questions."""


class Records(NamedTuple):
    """A sheet's rows by column name."""

    rows: list[Record]
    direct: bool
    """True if the pipeline reads the file itself; else the rows must be written as JSONL."""

    typed: bool = False
    """True for JSON, in which the pipeline reads a key with the name of a field as that field."""

    chats: bool = False
    """True if the rows are the questions of whole conversations."""

    note: str = ""
    """A remark on rows that were put together from single messages."""

    remarks: tuple[str, ...] = ()
    """Remarks on what was read, such as which row holds the column names, or which sheet."""


QUESTION_NAMES = tuple(name for names in (*NAMES.values(), TEXT_NAMES, CONVERSATION_NAMES) for name in names)
"""Usual names of columns in a sheet of questions or messages."""


def read_records(
    path: Path,
    named: Mapping[str, str] = MappingProxyType({}),
    sheet: str = "",
    usual_names: Collection[str] = QUESTION_NAMES,
) -> Records:
    """Read all rows of a file. The format is detected from the file's bytes, and from the endings .json and .jsonl.

    Rows that are single messages of chats become questions. `named` maps fields to the columns that a person named.
    `sheet` is the name of a workbook's sheet, by default its first visible one.
    """
    usual = {plain_name(name) for name in usual_names}
    records = _file_records(path, named, sheet, lambda text: text in named.values() or plain_name(text) in usual)
    refuse_missing_columns(path, records.rows, named)
    columns = message_columns(records.rows, named)
    if columns is None:
        return records
    if not columns.conversation:
        raise DataError(
            f"{path}: each row is a message of a chat ({columns.side}, {columns.text}), and no column says which "
            "conversation it belongs to. Name that column: --conversation-column NAME, or export the sheet with one, "
            "such as conversation_id."
        )
    questions = message_questions(records.rows, columns)
    count = len({question["conversation_id"] for question in questions})
    note = (
        f"Each row is a message of a chat ({columns.side}, {columns.text}): the {len(questions):,} messages of users "
        f"in {count:,} conversations ({columns.conversation}) are the questions, and what was said before each, by "
        "the order of the rows, is its history."
    )
    return Records(questions, direct=False, chats=True, note=note, remarks=records.remarks)


def sheets_of(path: Path) -> list[str]:
    """Return the names of a workbook's visible sheets; empty for a file of another kind."""
    _refuse_large(path)
    return sheet_names(path) if row_format(path) == "spreadsheet" else []


def _refuse_large(path: Path) -> None:
    if path.stat().st_size > UNCOMPRESSED_LIMIT:
        raise DataError(f"{path}: more than {UNCOMPRESSED_LIMIT >> 20} MB. Split it.")


def _file_records(path: Path, named: Mapping[str, str], sheet: str, is_name: IsName) -> Records:
    if fault := path_fault(path, "Give the spreadsheet, CSV or JSON of questions."):
        raise DataError(fault)
    _refuse_large(path)
    header = list[int]()
    if row_format(path) == "spreadsheet":
        cells = [cells for _, cells in read_table(path, (), is_name, sheet, header.append)]
        names = [] if sheet else sheet_names(path)
        return Records(cells, direct=not sheet, remarks=(*_header_remarks(header), *_sheet_remarks(names)))
    if sheet:
        raise DataError(f"{path}: --sheet {visible(sheet)} names a sheet of a workbook, and this is none.")
    content = path.read_bytes()
    text = decode_text(content, str(path)).lstrip()
    if path.suffix.lower() not in (".json", ".jsonl") and text[:1] not in ("{", "["):
        cells = [cells for _, cells in read_csv(path, (), is_name, header.append)]
        return Records(cells, direct=True, remarks=_header_remarks(header))
    return _json_records(path, content, text, named)


def _header_remarks(header: Sequence[int]) -> tuple[str, ...]:
    if not header or header[0] == 1:
        return ()
    return (f"Row {header[0]} is taken for the names of columns; the rows above it are left out.",)


def _sheet_remarks(names: Sequence[str]) -> tuple[str, ...]:
    if len(names) < 2:
        return ()
    more = ", ".join(map(visible, names[1 : 1 + SHOWN_SHEETS]))
    return (f"Only the sheet {visible(names[0])} is read, and not {more}: --sheet NAME reads another one.",)


def _json_records(path: Path, content: bytes, text: str, named: Mapping[str, str]) -> Records:
    try:
        values, lines = _json_values(path, text, named)
    except DataError as error:
        raise DataError(f"{error} Is the file whole? Export it again, or mend that line.") from error
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise DataError(f"{path}: element {number}: expected an object, found {type(value).__name__}.")
    if values and all(map(is_instruction, values)):
        shared = shared_instruction(values)
        note = f"All records have the same instruction, which is left out of the questions: {visible(shared[:60])}"
        questions = [instruction_question(value, shared) for value in values]
        return Records(questions, direct=False, remarks=(note,) if shared else ())
    chats = [_chat_of(value) for value in values]
    if values and all(chats):
        questions = [
            question
            for number, (value, turns) in enumerate(zip(values, chats, strict=True), 1)
            for question in _with_cells(chat_questions(_chat_id(value, number), turns or []), value)
        ]
        return Records(questions, direct=False, chats=True)
    # A run reads JSON only in UTF-8; any other encoding is written anew as JSONL.
    utf_8 = False
    with suppress(UnicodeDecodeError):
        utf_8 = bool(content.decode("utf-8-sig"))
    return Records(values, direct=utf_8 and (lines or text[:1] == "["), typed=True)


def _json_values(path: Path, text: str, named: Mapping[str, str]) -> tuple[list[Any], bool]:
    """Return the values of a JSON list, of JSON lines, or of the only list in an object, and True if each line holds
    one value."""
    if text[:1] == "[":
        values = parse_json(text, str(path), half_characters=True)
        columns = message_columns(values, named) if read_turns(values) else None
        one_chat = read_turns(values) and not (columns and columns.conversation)
        return ([{"messages": values}] if one_chat else values), False
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    try:
        values = [parse_json(line, str(path), number, half_characters=True) for number, line in lines]
    except DataError:
        whole = None
        with suppress(DataError):
            whole = parse_json(text, str(path), half_characters=True)
        if (records := _only_list(whole)) is None:
            raise
        return records, False
    records = _only_list(values[0]) if len(values) == 1 else None
    return (values, True) if records is None else (records, False)


def _only_list(value: Any) -> list[Any] | None:
    """Return the records in an object that wraps them, such as {"version": 1, "data": [...]}; otherwise None."""
    lists = [item for item in value.values() if isinstance(item, list)] if isinstance(value, dict) else []
    wrapped = len(lists) == 1 and all(isinstance(item, dict) for item in lists[0]) and not read_turns(lists[0])
    return lists[0] if wrapped else None


def _chat_of(record: Record) -> list[Turn] | None:
    """Return the turns of a record that is one conversation; None if it holds a question or other long texts."""
    chats = [turns for value in record.values() if (turns := read_turns(value))]
    texts = [
        value
        for key, value in record.items()
        if isinstance(value, str) and key not in INSTRUCTIONS and read_turns(value) is None
    ]
    named = {"question", "query", "问题", "提问"} & {key.lower() for key in record}
    return chats[0] if len(chats) == 1 and not named and all(len(text) <= 64 for text in texts) else None


def _chat_id(record: Record, number: int) -> str:
    return next((str(record[key]) for key in CHAT_ID_KEYS if record.get(key)), f"chat-{number}")


def _with_cells(questions: Sequence[Record], record: Record) -> list[Record]:
    """Add the other fields of a conversation's record to its questions: profile, split and tenant to every question,
    the rest, such as gold, to the last one."""
    cells = {key: value for key, value in record.items() if key not in CHAT_ID_KEYS and read_turns(value) is None}
    names = {name for field in OF_ALL_QUESTIONS for name in with_names(NAMES[field], [*cells])}
    shared = {key: value for key, value in cells.items() if key in names}
    return [*(shared | question for question in questions[:-1]), *(cells | question for question in questions[-1:])]
