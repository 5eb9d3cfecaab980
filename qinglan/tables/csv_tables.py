"""Reads CSV with commas, semicolons or tabs, in the encodings that spreadsheet programs write.

    for number, cells in read_csv(path): ...          # {"问题": "那它一天吃几次?", ...}

A cell is text, never a number. A cell that spreadsheet programs would run is a Formula, as in an .xlsx. Text that
programs could read in two ways (a quote without its end, a row of more cells than columns) is a DataError that names
the row. A cell may be longer than in a spreadsheet: code that reads the rows sets rows with too long cells aside.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from qinglan.errors import DataError
from qinglan.tables.file_formats import UNCOMPRESSED_LIMIT, UTF_16
from qinglan.tables.header_rows import FIRST_ROWS, IsName, header_index, no_name
from qinglan.tables.sheet_reader import Formula
from qinglan.tables.tables import CELL_LIMIT, Cells, check_header

BYTE_ORDER_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), *((mark, "utf-16") for mark in UTF_16))
DELIMITERS = ",;\t"
FORMULA = re.compile(r'\s*=\s*[-+@($"A-Za-z0-9]')
"""Pattern of a cell that a spreadsheet program would run. It does not match =_= and ==急==, which people write."""

KANA = re.compile("[\u3041-\u3096\u30a1-\u30fa]")
JAPANESE_SHARE = 0.2
"""Share of kana among non-ASCII characters, above which a text is Japanese. Chinese bytes that are read as Shift-JIS
give next to no kana."""

SINGLE_RUNS = 0.8
"""Share of one-byte runs among the runs of bytes above 127, from which a text counts as Western. In Western text
nearly all such runs are one byte long, in Chinese text few."""


def read_csv(
    path: Path,
    required: Sequence[str] = (),
    is_name: IsName = no_name,
    on_header: Callable[[int], object] = int,
) -> Iterator[tuple[int, Cells]]:
    """Yield the rows of a CSV file: the row number, and the cells by column name. Blank rows are skipped.

    Rows above the column names are left out; `on_header` gets the number of the row with the column names.
    """
    # If a quote has no end, csv.reader reads to the end of the file. strict=True makes that an error with its row.
    text = read_text(path)
    csv.field_size_limit(UNCOMPRESSED_LIMIT)  # strict=True finds a quote without its end
    number = 0
    try:
        delimiter = _delimiter(text)
        rows = enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), 1)
        filled = ((number, row) for number, row in rows if any(cell.strip() for cell in row))
        first: list[tuple[int, list[str]]] = []
        for number, row in islice(filled, FIRST_ROWS):
            first.append((number, row))
        if not first:
            return
        at = header_index([[*filter(None, map(str.strip, row))] for _, row in first], required, is_name)
        header_number, header = first[at][0], [cell.strip() for cell in first[at][1]]
        if (length := max(map(len, header))) > CELL_LIMIT:
            raise DataError(
                f"{path}: row {header_number} holds no names of columns: a cell of it has {length:,} characters. Is "
                "a quote without its end? Save the sheet as .xlsx, or export it again."
            )
        check_header(path, [name for name in header if name], required, is_name)
        on_header(header_number)
        for number, row in chain(first[at + 1 :], filled):
            if any(cell.strip() for cell in row[len(header) :]):
                raise DataError(
                    f"{path}: row {number} has {len(row)} cells, and there are {len(header)} columns. "
                    f"Put a cell that holds {delimiter!r} in double quotes. Row {header_number} is taken for the "
                    "names of columns: delete a title above them."
                )
            values = (Formula(cell) if FORMULA.match(cell) else cell for cell in row)
            yield number, {name: value for name, value in zip(header, values, strict=False) if name}
    except csv.Error as error:
        raise DataError(
            f"{path}: row {number + 1} is no row of a CSV file ({error}). Is a quote without its end? "
            "Save the sheet as .xlsx, or export it again."
        ) from error


def _delimiter(text: str) -> str:
    """Guess the delimiter: the sign that gives the first row most cells. If the first row is a title without
    delimiters, it is the sign that gives all rows from the third on the same number of cells."""

    def cells(sign: str) -> tuple[int, int]:
        rows = filter(any, csv.reader(io.StringIO(text, newline=""), delimiter=sign))
        widths = [len(row) for row in islice(rows, FIRST_ROWS)]
        below = widths[2:]  # the second row may be a title, too, and one row shows little
        return sum(widths[:1]), below[0] if len(below) > 1 and len(set(below)) == 1 else 1

    return max(DELIMITERS, key=cells)


def read_text(path: Path) -> str:
    """Read a text file in any encoding that `decode_text` knows; a DataError if the file is too large."""
    if (size := path.stat().st_size) > UNCOMPRESSED_LIMIT:
        raise DataError(f"{path}: {size / 2**20:.0f} MB is more than {UNCOMPRESSED_LIMIT / 2**20:.0f} MB. Split it.")
    return decode_text(path.read_bytes(), str(path))


def decode_text(content: bytes, where: str) -> str:
    """Decode bytes in UTF-8, UTF-16, GB18030 (which includes GBK), Shift-JIS or Windows' Western encoding."""
    marked = [name for mark, name in BYTE_ORDER_MARKS if content.startswith(mark)]
    for encoding in marked or ("utf-8", _legacy_encoding(content)):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text
    raise DataError(f"{where}: is no text in UTF-8, UTF-16 or GB18030 (GBK). Save it as UTF-8 and try again.")


def _legacy_encoding(content: bytes) -> str:
    runs = re.findall(rb"[\x80-\xff]+", content)
    if runs and sum(len(run) == 1 for run in runs) >= SINGLE_RUNS * len(runs):
        return "cp1252"
    try:
        text = content.decode("cp932")  # kana has bytes in Shift-JIS that are rare characters in GB18030
    except UnicodeDecodeError:
        return "gb18030"
    foreign = sum(letter > "\x7f" for letter in text)
    return "cp932" if len(KANA.findall(text)) > JAPANESE_SHARE * foreign else "gb18030"
