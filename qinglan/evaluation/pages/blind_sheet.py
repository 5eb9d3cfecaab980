"""Blind sheets, which people fill in without seeing the answers. The answers are in a second file, the key. A sheet
is read only with its own key.

write_sheet(sheet, key, ["问题", ...], rows)                             # a SheetRow for each row
for row in read_sheet(sheet, read_key(key, sheet), ["问题", ...], shown): ...   # row.cells, row.key
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.documents import parse_json_mapping
from qinglan.errors import DataError
from qinglan.files.files import atomic_write, sha256_text
from qinglan.files.input_paths import path_fault
from qinglan.files.plain_files import read_plain
from qinglan.tables.sheet_reader import Cell
from qinglan.tables.tables import Cells, cell_label, read_table, safe_cell, write_table
from qinglan.text.text import one_line

NUMBER_COLUMN = "编号"
KeyRow = dict[str, Any]
Key = dict[str, KeyRow]
"""Hidden part of each row, by the row's number on the sheet, which starts at 1. Its field `shown` is the digest of
the texts that people see."""


class SheetRow(NamedTuple):
    cells: Sequence[Cell]
    shown: Sequence[Any]
    """Texts that people see. Their digest is put into the key, to check that a sheet belongs to a key."""

    key: KeyRow


class FilledRow(NamedTuple):
    where: str
    """Sheet and row number, for error messages."""

    cells: Cells
    key: KeyRow


def write_sheet(sheet: Path, key: Path, columns: Sequence[str], rows: Iterable[SheetRow]) -> int:
    """Write the sheet, with rows numbered from 1, and its key; return the number of rows."""
    secrets: Key = {}
    with write_table(sheet, [NUMBER_COLUMN, *columns]) as add:
        for number, row in enumerate(rows, 1):
            add([number, *row.cells])
            secrets[str(number)] = row.key | {"shown": _digest(row.shown)}
    with atomic_write(key) as partial:
        partial.write_bytes(orjson.dumps(secrets, option=orjson.OPT_INDENT_2))
    return len(secrets)


def read_key(path: Path, sheet: Path) -> Key:
    """Read the key of a sheet. A missing sheet is reported before a missing key."""
    if fault := path_fault(sheet, "Give the filled blind sample."):
        raise DataError(fault)
    try:
        return parse_json_mapping(read_plain(path), str(path))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}. The evaluate stage writes the key beside the sheet.") from error
    except DataError as error:
        raise DataError(
            f"{path}: not the key of a blind sample, which is JSON that the evaluate stage writes: {error}"
        ) from error


def read_sheet(
    sheet: Path,
    key: Key,
    columns: Sequence[str],
    shown: Callable[[Cells, KeyRow], Iterable[Any]],
) -> list[FilledRow]:
    """Read the rows of a filled sheet, each with its part of the key; raises a DataError for a repeated row, a row
    that the key lacks, or a changed text. `shown` returns the texts that people see in a row."""
    rows = list(read_table(sheet, [NUMBER_COLUMN, *columns]))
    numbers = Counter(cell_label(cells[NUMBER_COLUMN]) for _, cells in rows)
    if twice := [number for number, times in numbers.items() if times > 1]:
        raise DataError(
            f"{sheet}: {NUMBER_COLUMN} {', '.join(twice)} stands there twice. Leave the rows as they were."
        )
    filled = []
    for number, cells in rows:
        where, name = f"{sheet}, row {number}", cell_label(cells[NUMBER_COLUMN])
        if (row := key.get(name)) is None:
            raise DataError(f"{where}: {NUMBER_COLUMN} {name!r} is not in the key. Use the key of this very sheet.")
        if _digest(shown(cells, row)) != row["shown"]:
            raise DataError(
                f"{where}: its texts are not those of the key. Use the key of this very sheet, and leave its texts "
                "as they are."
            )
        filled.append(FilledRow(where, cells, row))
    return filled


def refuse_other_run(key: Path, rows: Iterable[KeyRow], known: Container[str]) -> None:
    """Raise a DataError if the key has a row that the run's predictions lack; `known` are the predictions' ids."""
    if unknown := [row["id"] for row in rows if row["id"] not in known]:
        raise DataError(
            f"{key}: row {unknown[0]} is not in the predictions. Use key and predictions of the same run."
        )


def _digest(texts: Iterable[Any]) -> str:
    return sha256_text(*(one_line(str(safe_cell(text or ""))) for text in texts))
