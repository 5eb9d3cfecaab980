"""Spreadsheets in and out, a row at a time. What comes in is data: formulas, bombs, merged cells are refused.

    for number, cells in read_table(path): ...          # {"问题": "那它一天吃几次?", ...}
    with write_table(path, ["问题", "改写"]) as add: add([question, rewrite])

pandas reads a whole sheet into memory before the first row; openpyxl streams, so 100,000 rows stay small.
"""

import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

from qinglan.errors import DataError
from qinglan.reproducible_workbook import reproducible_workbook

UNCOMPRESSED_LIMIT = 256 * 1024 * 1024
"""Bytes a sheet may unpack to; 100,000 rows of conversations take about 80 MB."""

OLD_SPREADSHEET = b"\xd0\xcf\x11\xe0"
"""First bytes of an .xls file."""

SHEET_ENDINGS = (".xlsx", ".xlsm", ".xls", ".et")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
CELL_LIMIT = 32_767

WIDTH_ROWS = 100
"""The first rows decide how wide the columns are shown."""

WIDEST = 60


class Formula(str):
    """A cell that holds a formula: its text, marked so that nobody takes it for a value."""


Cell = str | int | float | bool | None
Cells = dict[str, Cell]


def is_spreadsheet(path: Path) -> bool:
    """By its first bytes: a pipeline's artifact has no file ending."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def misnamed_in_words(path: Path) -> str:
    """Words for an error about a file that is no .xlsx: empty where its name does not say that it is one."""
    if path.suffix.lower() not in SHEET_ENDINGS:
        return ""
    return (
        f" Its name ends in {path.suffix}, but it is no .xlsx spreadsheet: open it in a spreadsheet program and save "
        "it as .xlsx, or give it the ending of what it is."
    )


def read_table(path: Path, required: Sequence[str] = ()) -> Iterator[tuple[int, Cells]]:
    """Rows of the first sheet by column name, with their row numbers; blank rows are passed over."""
    refuse_bomb(path)
    sheet, close = _open_sheet(path)
    try:
        _refuse_merged(path, sheet)
        rows = sheet.iter_rows()
        header = [str(cell.value).strip() if cell.value is not None else "" for cell in next(rows, ())]
        check_header(path, header, required)
        for number, row in enumerate(rows, 2):
            cells = {name: _value(cell) for name, cell in zip(header, row, strict=False) if name}
            if any(value not in (None, "") for value in cells.values()):
                yield number, cells
    finally:
        close()


def refuse_bomb(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(item.file_size for item in archive.infolist())
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not a readable .xlsx file ({error}). Save it as .xlsx and try again.") from error
    if size > UNCOMPRESSED_LIMIT:
        raise DataError(
            f"{path}: unpacks to {size / 2**20:.0f} MB, more than the {UNCOMPRESSED_LIMIT / 2**20:.0f} MB "
            "that a table of questions needs. Split the sheet, or export it as JSONL."
        )


def _open_sheet(path: Path) -> tuple[Any, Callable[[], None]]:
    from openpyxl import load_workbook

    try:
        book = load_workbook(path, read_only=True)
        return book.worksheets[0], book.close
    except Exception as error:  # openpyxl raises whatever its parsers meet
        raise DataError(f"{path}: not a readable .xlsx file ({error}). Save it again and retry.") from error


def _refuse_merged(path: Path, sheet: Any) -> None:
    """openpyxl's streaming mode does not tell of merged cells, and their lower rows would read as empty."""
    with zipfile.ZipFile(path) as archive, archive.open(sheet._worksheet_path) as file:
        tail = b""
        while block := file.read(1 << 20):
            window = tail + block
            if (at := window.find(b"<mergeCell ")) >= 0:
                ref = (window[at : at + 80] + file.read(80)).split(b'ref="')[-1].split(b'"')[0].decode()
                raise DataError(
                    f"{path}: cells {ref} are merged, so rows below the first have no value of their own. "
                    "Unmerge them (取消合并单元格) and fill in each row."
                )
            tail = block[-16:]


def check_header(path: Path, header: list[str], required: Sequence[str]) -> None:
    if missing := [name for name in required if name not in header]:
        raise DataError(
            f"{path}: no column {', '.join(map(repr, missing))} in the first row; it has "
            f"{', '.join(repr(name) for name in header if name) or 'nothing'}. "
            "Rename the column, or say in the profile what yours is called: `generate.columns`, of labelled answers "
            "`prepare.columns`."
        )
    named = [name for name in header if name]
    if twice := sorted({name for name in named if named.count(name) > 1}):
        raise DataError(f"{path}: column {twice[0]!r} appears twice in the first row. Keep one.")


def _value(cell: Any) -> Cell:
    value = cell.value
    if cell.data_type == "f":
        return Formula(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


@contextmanager
def write_table(path: Path, columns: Sequence[str]) -> Iterator[Callable[[Sequence[Cell]], None]]:
    """A function that adds a row; the sheet is there, whole, when the block has ended well.

    The same rows give the same bytes on any day.
    """
    from openpyxl import Workbook
    from openpyxl.utils import get_column_letter

    book = Workbook(write_only=True)
    sheet = book.create_sheet("数据")
    sheet.freeze_panes = "A2"
    first: list[list[Cell]] = [list(columns)]

    def add(row: Sequence[Cell]) -> None:
        cells = [safe_cell(value) for value in row]
        if first:
            first.append(cells)
            if len(first) > WIDTH_ROWS:
                flush()
        else:
            sheet.append(cells)

    def flush() -> None:
        """Write the first rows: openpyxl writes the widths of columns ahead of them, and they decide those."""
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
        sheet.close()
        raise
    with reproducible_workbook(path) as written:
        book.save(written)


def column_widths(rows: Sequence[Sequence[Cell]]) -> list[int]:
    """Characters that each column takes to show its longest cell, within limits that keep a sheet on a screen."""
    columns = zip_longest(*rows, fillvalue=None)
    return [min(max(map(_width, column)) + 2, WIDEST) for column in columns]


def _width(value: Cell) -> int:
    """A Chinese character is as wide as two letters."""
    text = "" if value is None else str(value)
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def safe_cell(value: Cell) -> Cell:
    """Text that a spreadsheet would run as a formula gets a leading apostrophe; the rest is as it was."""
    if not isinstance(value, str):
        return value
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    text = ILLEGAL_CHARACTERS_RE.sub(" ", value)[: CELL_LIMIT - 1]
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text
