"""Reads the visible sheets of an .xlsx row by row. openpyxl streams them, so 100,000 rows take little memory.

    with visible_sheets(path) as sheets:
        for number, row in sheets[0].rows(): ...        # {1: "那它一天吃几次?", 2: None}

Empty cells cost nothing: a sheet with one cell, at XFD1048576, takes the work of one cell. sheet_checks.py limits the
work for a file.
"""

import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.errors import DataError
from qinglan.tables.file_formats import ZIP_ERRORS, zipped_kind
from qinglan.tables.sheet_checks import SHEET_NAMESPACE, PartScan, scan_parts

LAST_ROW = 1_048_576
"""Last row that spreadsheet programs support."""

SHOWN = 60


class Formula(str):
    """Text of a cell's formula, as a separate type, so that it is not taken for a value."""


Cell = str | int | float | bool | None
Row = dict[int, Cell]
"""Cells of a row, by the number of their column."""


class Sheet(NamedTuple):
    where: str
    """The file and the sheet, for errors."""

    source: Any
    scan: PartScan

    @property
    def name(self) -> str:
        return str(self.source.title)

    def rows(self, merged_to: int = 0) -> Iterator[tuple[int, Row]]:
        """Yield the rows with their numbers, in order; a DataError if the content is ambiguous.

        Cells may be merged only down to row `merged_to`, since titles above the column names are not read.
        """
        # For a sheet in another namespace, such as Strict Open XML's, openpyxl yields neither rows nor an error.
        if self.scan.namespace != SHEET_NAMESPACE:
            raise DataError(
                f"{self.where}: not in the usual form of .xlsx (Strict Open XML?). Save it as plain .xlsx."
            )
        if self.scan.merged_to > merged_to:
            raise DataError(
                f"{self.where}: cells {self.scan.merged} are merged, so rows below the first have no value of their "
                "own. Unmerge them (取消合并单元格) and fill in each row."
            )
        last = 0
        for number, cells in self._parsed():
            if not last < number <= LAST_ROW:
                raise DataError(
                    f"{self.where}: row {number} after row {last}: no program writes that. Save it again."
                )
            last = number
            yield number, self._row(number, cells)

    def _parsed(self) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        number = 0
        try:
            # _get_source and WorkSheetParser are private in openpyxl 3.1 (worksheet/_read_only.py). iter_rows
            # pads every row to the widest, so one cell in the last column would cost 16,384 cells a row.
            with warnings.catch_warnings(), self.source._get_source() as part:
                warnings.simplefilter("ignore")  # about dates that no calendar has; such a cell is an error
                for number, cells in _parser(self.source, part).rows():
                    yield number, cells
        except Exception as error:  # openpyxl lets any error of its parsers through
            raise DataError(f"{self.where}: cannot be read after row {number} ({error}). Save it again.") from error

    def _row(self, number: int, cells: list[dict[str, Any]]) -> Row:
        row: Row = {}
        for cell in cells:
            if cell["row"] != number or cell["column"] in row:
                raise DataError(f"{self.where}: row {number} holds a cell twice, or another row's. Save it again.")
            row[cell["column"]] = _value(cell)
        return row


@contextmanager
def visible_sheets(path: Path) -> Iterator[list[Sheet]]:
    """Yield the visible sheets, in order; a DataError if no sheet is visible."""
    from openpyxl import load_workbook

    if kind := zipped_kind(path):
        raise DataError(f"{path}: this is {kind}. Open it in a spreadsheet program and save it as .xlsx.")
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                scans = scan_parts(archive, str(path))
        except ZIP_ERRORS as error:
            raise DataError(
                f"{path}: not a readable .xlsx file ({error}). Save it as .xlsx and try again."
            ) from error
        try:
            book = load_workbook(file, read_only=True, keep_links=False)
        except Exception as error:  # openpyxl lets any error of its parsers through
            raise DataError(f"{path}: not a readable .xlsx file ({error}). Save it again and retry.") from error
        visible: list[Any] = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"]
        sheets = [
            Sheet(f"{path} ({sheet.title})", sheet, scans.get(sheet._worksheet_path.lstrip("/"), PartScan()))
            for sheet in visible
        ]
        if not sheets:
            raise DataError(f"{path}: no sheet of it can be seen. Show the one with the rows (取消隐藏), and save.")
        yield sheets


def _parser(sheet: Any, part: Any) -> Any:
    """Return openpyxl's parser, reduced to cells. It ignores the rest of a sheet and does not translate shared
    formulas."""
    from openpyxl.worksheet._reader import FORMULA_TAG, ROW_TAG, WorkSheetParser
    from openpyxl.xml.functions import iterparse

    class Parser(WorkSheetParser):
        def rows(self) -> Iterator[tuple[int, list[dict[str, Any]]]]:
            for _, element in iterparse(self.source):
                if element.tag == ROW_TAG:
                    yield self.parse_row(element)
                    element.clear()

        def parse_formula(self, element: Any) -> str:
            return f"={element.find(FORMULA_TAG).text or ''}"

    book = sheet.parent
    return Parser(
        part,
        sheet._shared_strings,
        epoch=book.epoch,
        date_formats=book._date_formats,
        timedelta_formats=book._timedelta_formats,
    )


def _value(cell: dict[str, Any]) -> Cell:
    value = cell["value"]
    if cell["data_type"] == "f":
        return Formula(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
