"""Rows of an .xls file, read by calamine in a process of its own.

calamine is compiled: a broken file can make it panic or allocate all memory, and either ends its process. Run as a
script, this module is that process, with limits of memory and CPU time.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qinglan.errors import DataError
from qinglan.tables.header_rows import FIRST_ROWS, IsName, header_index
from qinglan.terminal import visible

ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
"""Name of a part of an .xlsx file with a password, which is stored in a container of the old format."""

MEMORY_LIMIT = 1 << 30
SHOWN_SHEETS = 5
SECONDS = 60
"""CPU seconds that the reader may take; a sheet of 65,536 rows, the most that .xls allows, takes about two."""


def read_old_spreadsheet(path: Path, name: str, is_name: IsName) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Read the sheet `name`, or the first visible one; return its rows and remarks. calamine gives a formula's last
    value, never the formula."""
    sheet = _read(path, name)
    if name and name not in sheet["names"]:
        names = ", ".join(map(visible, sheet["names"]))
        raise DataError(f"{path}: no sheet {visible(name)!r} can be seen; there are {names}.")
    rows = [
        (number, row)
        for number, row in enumerate(sheet["rows"], 1 + sheet["begin"])
        if any(value != "" for value in row)
    ]
    first = [[text for value in row if (text := str(value).strip())] for _, row in rows[:FIRST_ROWS]]
    at = header_index(first, (), is_name)
    number, names_row = rows[at] if rows else (1, [])
    if sheet["merged"] >= number:
        raise DataError(f"{path}: has merged cells. Unmerge them (取消合并单元格) and fill in each row.")
    header = [str(value).strip() for value in names_row]
    records = [
        {column: value for column, value in zip(header, row, strict=False) if column} for _, row in rows[at + 1 :]
    ]
    return records, (*header_remarks([number]), *([] if name else sheet_remarks(sheet["names"])))


def old_sheet_names(path: Path) -> list[str]:
    """The names of the sheets that can be seen."""
    names: list[str] = _read(path, "")["names"]
    return names


def _read(path: Path, name: str) -> dict[str, Any]:
    """Read a sheet in another process: its rows, and the names of all visible sheets."""
    if ENCRYPTED in path.read_bytes():
        raise DataError(f"{path}: is encrypted. Save it without a password, and try again.")
    command = [sys.executable, "-m", "commands.init.old_spreadsheet", str(path.resolve()), name]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise unreadable(path, f"its reader ended with status {done.returncode}")
    sheet: dict[str, Any] = json.loads(done.stdout)
    if "error" in sheet:
        raise unreadable(path, sheet["error"])
    return sheet


def header_remarks(header: Sequence[int]) -> tuple[str, ...]:
    """A remark if the names of columns are below the first row."""
    if not header or header[0] == 1:
        return ()
    return (f"Row {header[0]} is taken for the names of columns; the rows above it are left out.",)


def sheet_remarks(names: Sequence[str]) -> tuple[str, ...]:
    """A remark if the workbook has more sheets than the one that is read."""
    if len(names) < 2:
        return ()
    more = ", ".join(map(visible, names[1 : 1 + SHOWN_SHEETS]))
    return (f"Only the sheet {visible(names[0])} is read, and not {more}: --sheet NAME reads another one.",)


def unreadable(path: Path, reason: str) -> DataError:
    return DataError(f"{path}: not a readable .xls file ({reason}). Save it as .xlsx and try again.")


def main() -> None:
    """Write the named sheet, or else the first visible one, to stdout as JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from python_calamine import CalamineWorkbook, SheetVisibleEnum

    try:
        book = CalamineWorkbook.from_path(sys.argv[1])
        names = [sheet.name for sheet in book.sheets_metadata if sheet.visible == SheetVisibleEnum.Visible]
        if not names:
            raise ValueError("no sheet of it can be seen")
        name = sys.argv[2] if sys.argv[2] in names else names[0]
        sheet = book.get_sheet_by_name(name)
        rows = [list(map(plain, row)) for row in sheet.to_python()]
        merged = max((end[0] + 1 for _, end in sheet.merged_cell_ranges or ()), default=0)
        document = json.dumps(
            {"merged": merged, "begin": sheet.start[0] if sheet.start else 0, "rows": rows, "names": names}
        )
    except BaseException as error:  # calamine lets parser errors through; its panics are no Exception
        document = json.dumps({"error": str(error)})
    sys.stdout.write(document)  # at once: an error halfway through would leave half a document before its own


def plain(value: Any) -> Any:
    """A cell as JSON can hold it; dates become text."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int | float | bool) else str(value)


if __name__ == "__main__":
    main()
