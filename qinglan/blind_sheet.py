"""What blind sheets share: a key in another file, and rows that are only read with the key of that very sheet."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from qinglan.errors import DataError
from qinglan.files import atomic_write, sha256_text
from qinglan.tables import Cells, read_table, safe_cell
from qinglan.text import one_line

NUMBER_COLUMN = "编号"
KeyRow = dict[str, Any]


def write_key(path: Path, rows: Iterable[KeyRow]) -> None:
    """Each row by its number on the sheet, from 1; `shown` is the digest of what people see of it."""
    kept = {str(number): row for number, row in enumerate(rows, 1)}
    with atomic_write(path) as partial:
        partial.write_bytes(orjson.dumps(kept, option=orjson.OPT_INDENT_2))


def read_key(path: Path, sheet: Path) -> dict[str, KeyRow]:
    """What was written for a sheet, once that is there."""
    if not sheet.is_file():
        raise DataError(f"{sheet}: no such file. Give the filled blind sample.")
    try:
        return dict(orjson.loads(path.read_bytes()))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}. The evaluate stage writes the key beside the sheet.") from error
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{path}: not the key of a blind sample, which is JSON that the evaluate stage writes."
        ) from error


def digest_of_texts(*texts: Any) -> str:
    """Of what people see of a row: a key that is another sheet's would give their answers to others."""
    return sha256_text(*(one_line(str(safe_cell(text or ""))) for text in texts))


def read_filled_rows(sheet: Path, columns: Sequence[str]) -> list[tuple[int, Cells]]:
    """The rows of a sheet that people filled in; none of them twice."""
    rows = list(read_table(sheet, [NUMBER_COLUMN, *columns]))
    numbers = Counter(str(cells[NUMBER_COLUMN]) for _, cells in rows)
    if twice := [number for number, times in numbers.items() if times > 1]:
        raise DataError(
            f"{sheet}: {NUMBER_COLUMN} {', '.join(twice)} stands there twice. Leave the rows as they were."
        )
    return rows


def find_key_row(sheet: Path, number: int, cells: Cells, key: Mapping[str, KeyRow]) -> KeyRow:
    """What the key says of a row."""
    name = str(cells[NUMBER_COLUMN])
    if (row := key.get(name)) is None:
        raise DataError(
            f"{sheet}, row {number}: {NUMBER_COLUMN} {name!r} is not in the key. Use the key of this very sheet."
        )
    return row


def refuse_changed_texts(sheet: Path, number: int, row: KeyRow, texts: Iterable[Any], what: str) -> None:
    """A row whose texts are not those that the key was written for."""
    if digest_of_texts(*texts) != row["shown"]:
        raise DataError(
            f"{sheet}, row {number}: {what}. Use the key of this very sheet, and leave its texts as they are."
        )
