"""Rows of an .xls file, read by calamine in a process of its own.

calamine is compiled: a broken file can make it panic, or ask for more memory than there is, and either would end the
process that it runs in. This module, run with the path, is that process, with bounds of memory and time.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from qinglan.errors import DataError

MEMORY_LIMIT = 1 << 30
SECONDS = 60
"""Time of the processor; a sheet of 65,536 rows, the most that .xls has, takes about two."""


def read_old_spreadsheet(path: Path) -> list[dict[str, Any]]:
    """Rows of the first sheet; calamine gives a formula's last value, never the formula."""
    command = [sys.executable, "-m", "pipelines.tenant_setup.old_spreadsheet", str(path.resolve())]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise unreadable(path, f"its reader ended with status {done.returncode}")
    sheet = json.loads(done.stdout)
    if "error" in sheet:
        raise unreadable(path, sheet["error"])
    if sheet["merged"]:
        raise DataError(f"{path}: has merged cells. Unmerge them (取消合并单元格) and fill in each row.")
    rows = sheet["rows"]
    header = [str(value).strip() for value in rows[0]] if rows else []
    return [
        {name: value for name, value in zip(header, row, strict=False) if name}
        for row in rows[1:]
        if any(value != "" for value in row)
    ]


def unreadable(path: Path, reason: str) -> DataError:
    return DataError(f"{path}: not a readable .xls file ({reason}). Save it as .xlsx and try again.")


def main() -> None:
    """Write the first sheet to the output as JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from python_calamine import CalamineWorkbook

    try:
        sheet = CalamineWorkbook.from_path(sys.argv[1]).get_sheet_by_index(0)
        rows = [list(map(plain, row)) for row in sheet.to_python()]
        document = json.dumps({"merged": bool(sheet.merged_cell_ranges), "rows": rows})
    except BaseException as error:  # calamine raises whatever its parsers meet, and panics are no Exception
        document = json.dumps({"error": str(error)})
    sys.stdout.write(document)  # at once: an error halfway through would leave half a document before its own


def plain(value: Any) -> Any:
    """A cell as JSON can hold it; dates become text."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int | float | bool) else str(value)


if __name__ == "__main__":
    main()
