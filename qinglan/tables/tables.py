"""Reads and writes spreadsheets, a row at a time. Zip bombs and merged cells are refused; a formula stays a Formula.

for number, cells in read_table(path): ...          # {"问题": "那它一天吃几次?", ...}
with write_table(path, ["问题", "改写"]) as add: add([question, rewrite])
"""

import re
import shutil
import tempfile
import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from qinglan.errors import DataError
from qinglan.files.files import atomic_write
from qinglan.files.plain_files import writing
from qinglan.tables.header_rows import FIRST_ROWS, IsName, header_index, no_name
from qinglan.tables.sheet_reader import LAST_ROW, Cell, Row, Sheet, visible_sheets
from qinglan.terminal import visible

FORMULA = re.compile("[\\s\u200b-\u200f\u2060\ufeff]*[=+\\-@＝＋－＠]|[\\t\\r]")
"""Pattern of text that a spreadsheet program may run as a formula, also in full width. Blanks before it do not
matter, because a program that reads an exported CSV removes them
(https://owasp.org/www-community/attacks/CSV_Injection)."""

CELL_LIMIT = 32_767

NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 refuses (https://www.w3.org/TR/xml/#charsets). A single one makes a whole sheet unreadable.
openpyxl's own list lacks U+FFFE, U+FFFF and lone surrogates."""

WIDTH_ROWS = 100
"""Number of first rows that decide how wide the columns are shown."""

WIDEST = 60
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that an archive can hold."""


Cells = dict[str, Cell]


def read_table(
    path: Path,
    required: Sequence[str] = (),
    is_name: IsName = no_name,
    sheet: str = "",
    on_header: Callable[[int], object] = int,
) -> Iterator[tuple[int, Cells]]:
    """Yield the rows of a sheet, by default the first visible sheet: the row number, and the cells by column name.

    Blank rows and rows above the column names are left out; hidden rows are read. `on_header` gets the number of the
    row with the column names. Without `sheet`, a second sheet with the required columns is an error, because its rows
    would be lost.
    """
    with visible_sheets(path) as sheets:
        table = next((each for each in sheets if each.name.strip() == sheet.strip()), None) if sheet else sheets[0]
        if table is None:
            names = ", ".join(visible(each.name) for each in sheets)
            raise DataError(f"{path}: no sheet {sheet!r} can be seen; there are {names}.")
        header_number, header = _header(table, required, is_name)
        check_header(path, list(header.values()), required, is_name)
        if not sheet:
            _refuse_second_table(sheets[1:], required)
        on_header(header_number)
        for number, row in table.rows(merged_to=header_number - 1):
            cells = {name: row.get(column) for column, name in header.items()}
            if number > header_number and any(value not in (None, "") for value in cells.values()):
                yield number, cells


def sheet_names(path: Path) -> list[str]:
    with visible_sheets(path) as sheets:
        return [sheet.name for sheet in sheets]


def _header(table: Sheet, required: Sequence[str], is_name: IsName) -> tuple[int, dict[int, str]]:
    rows = ((number, _names(row)) for number, row in table.rows(merged_to=LAST_ROW))
    first = list(islice(((number, names) for number, names in rows if names), FIRST_ROWS))
    if not first:
        return 1, {}
    return first[header_index([list(names.values()) for _, names in first], required, is_name)]


def _names(row: Row) -> dict[int, str]:
    names = {column: str(value).strip() for column, value in row.items() if value is not None}
    return {column: name for column, name in names.items() if name}


def _refuse_second_table(more: Sequence[Sheet], required: Sequence[str]) -> None:
    for sheet in more if required else ():
        try:
            _, names = _header(sheet, required, no_name)
        except DataError:  # a sheet that cannot be read, of another kind
            continue
        if set(required) <= set(names.values()):
            raise DataError(
                f"{sheet.where}: has the columns of the first sheet too, and only one sheet is read. Put all rows "
                "into one sheet, hide or delete the other, or name one: `qinglan init --sheet NAME`."
            )


def check_header(path: Path, header: Sequence[str], required: Sequence[str], is_name: IsName) -> None:
    """Raise a DataError if a required column is missing, or if a column that is used appears twice. Without `is_name`
    all columns count as used."""
    if missing := [name for name in required if name not in header]:
        raise DataError(
            f"{path}: no column {', '.join(map(repr, missing))} in the first row; it has "
            f"{', '.join(map(repr, header)) or 'nothing'}. "
            "Rename the column, or say in the profile what yours is called: `generate.columns`, of labelled answers "
            "`prepare.columns`."
        )
    used = {name for name in header if is_name is no_name or name in required or is_name(name)}
    if twice := sorted(name for name in used if header.count(name) > 1):
        raise DataError(f"{path}: column {twice[0]!r} appears twice in the first row. Keep one.")


@contextmanager
def write_table(path: Path, columns: Sequence[str]) -> Iterator[Callable[[Sequence[Cell]], None]]:
    """Yield a function that adds a row to a new sheet. The complete file appears when the block ends without an
    error.

    The same rows give the same bytes on any day.
    """
    from openpyxl import Workbook
    from openpyxl.utils import get_column_letter
    from openpyxl.writer.excel import ExcelWriter

    book = Workbook(write_only=True)
    sheet = book.create_sheet("数据")
    sheet.freeze_panes = "A2"
    first: list[list[Cell]] = [[safe_cell(name) for name in columns]]

    def add(row: Sequence[Cell]) -> None:
        cells = [safe_cell(value) for value in row]
        if first:
            first.append(cells)
            if len(first) > WIDTH_ROWS:
                flush()
        else:
            with writing(Path(tempfile.gettempdir())):  # openpyxl collects the rows there
                sheet.append(cells)

    def flush() -> None:
        """Write the first rows. They decide the widths of the columns, which openpyxl writes before all rows."""
        for number, width in enumerate(column_widths(first), 1):
            sheet.column_dimensions[get_column_letter(number)].width = width
        for cells in first:
            sheet.append(cells)
        first.clear()

    try:
        yield add
        if first:
            flush()
    except BaseException:
        with suppress(OSError):  # of a full disk, which the first error already reports
            sheet.close()
        raise
    book.properties.created = book.properties.modified = datetime(*ZIP_EPOCH)
    with atomic_write(path) as partial, _UndatedZip(partial, "w") as archive:
        ExcelWriter(book, archive).save()


class _UndatedZip(zipfile.ZipFile):
    """A zip archive with a fixed time for each file, so that a workbook has the same bytes on any day."""

    def writestr(self, zinfo_or_arcname: Any, data: Any, *_: Any, **__: Any) -> None:
        with self.open(_undated(zinfo_or_arcname), "w") as entry:
            entry.write(data.encode() if isinstance(data, str) else data)

    def write(self, filename: Any, arcname: Any = None, *_: Any, **__: Any) -> None:
        with Path(filename).open("rb") as source, self.open(_undated(arcname), "w") as entry:
            shutil.copyfileobj(source, entry)


def _undated(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, ZIP_EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def column_widths(rows: Sequence[Sequence[Cell]]) -> list[int]:
    """Return the width of each column in characters: enough for its longest cell, up to WIDEST."""

    def width(value: Cell) -> int:
        text = "" if value is None else str(value)
        return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)

    columns = zip_longest(*rows, fillvalue=None)
    return [min(max(map(width, column)) + 2, WIDEST) for column in columns]


def safe_cell(value: Cell) -> Cell:
    """Make a value safe to write: text that a spreadsheet would run as a formula gets a leading apostrophe,
    characters that XML refuses become spaces, and too long a text is cut."""
    if not isinstance(value, str):
        return value
    text = NOT_XML.sub(" ", value)[: CELL_LIMIT - 1]
    return f"'{text}" if FORMULA.match(text) else text


def cell_label(value: Cell) -> str:
    """Restore an id or a name that `write_table` wrote and a program read again. The apostrophe of `safe_cell` is
    removed, the text is put on one line, and 1001.0, which spreadsheet programs make of 1001, becomes 1001."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = NOT_XML.sub(" ", str(value))
    escaped = text.startswith("'") and FORMULA.match(text[1:]) is not None
    return " ".join(text[escaped:].split())
