"""Recognises the format of a file of rows by its content. Other formats are refused with advice on how to save the
file."""

import lzma
import struct
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Literal

from qinglan.errors import DataError

ZIP, OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
HEAD = 1 << 16
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
UNCOMPRESSED_LIMIT = 256 * 1024 * 1024
"""Size limit of a text or an unpacked document in bytes; 100,000 rows of conversations take about 80 MB."""

ZIP_ERRORS = (
    OSError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, RuntimeError, EOFError, ValueError,
)  # fmt: skip
"""All errors that `zipfile` raises for an archive with a broken directory or member."""

SAVE_AS_XLSX = "open it in a spreadsheet program and save it as .xlsx"
NAME_THE_ROWS = "name the file with the rows"
FOREIGN = {
    b"\x89PNG": ("a picture (PNG)", NAME_THE_ROWS),
    b"\xff\xd8\xff": ("a picture (JPEG)", NAME_THE_ROWS),
    b"GIF8": ("a picture (GIF)", NAME_THE_ROWS),
    b"%PDF-": ("a PDF document", NAME_THE_ROWS),
    b"SQLite format 3": ("an SQLite database", NAME_THE_ROWS),
    b"PAR1": ("a Parquet file", "save its rows as JSONL or CSV"),
    b"\x1f\x8b": ("a gzip archive", "unpack it first"),
    OLE: ("an old .xls spreadsheet, or one with a password", f"{SAVE_AS_XLSX}, without a password"),
}
"""First bytes of files in formats that are not read, each with the format's name and advice to the user."""

WORKBOOKS = (".xlsx", ".xlsm", ".xls")
"""File name endings of workbooks; some programs write CSV or a web page under such a name."""

ZIPPED = {
    "xl/workbook.bin": "an .xlsb spreadsheet",
    "content.xml": "an OpenDocument file (.ods)",
    "word/document.xml": "a text document (.docx)",
    "Index/Document.iwa": "a Numbers document",
}


def is_spreadsheet(path: Path) -> bool:
    """True if the first bytes are those of an .xlsx. The name is not used, because a pipeline's artifact has no file
    name ending."""
    return _head(path, len(ZIP)) == ZIP


def row_format(path: Path) -> Literal["spreadsheet", "json", "jsonl", "csv"]:
    """Return the format of a file of rows, by its first bytes; a DataError with advice if the format is not
    supported."""
    head = _head(path)
    if head.startswith(ZIP):
        return "spreadsheet"
    if (kind_and_advice := _foreign_format(head)) is not None:
        kind, advice = kind_and_advice
        raise DataError(f"{path}: this is {kind}, and an .xlsx, CSV or JSONL is needed: {advice}.")
    # The format is guessed from the first character; the ending of the name decides only between JSON and JSONL.
    first, ending = _first_line(head)[:1], path.suffix.lower()
    if ending in WORKBOOKS and len(head.strip().splitlines()) < 2 and first not in ("[", "{"):
        raise DataError(
            f"{path}: this is no workbook, although its name ends in {ending}, and no CSV either: it is one line of "
            f"{len(head):,} bytes. It may be broken: export or copy it again, or {SAVE_AS_XLSX}."
        )
    if first == "[" and ending != ".jsonl":
        return "json"
    return "jsonl" if first == "{" or ending in (".json", ".jsonl") else "csv"


def _foreign_format(head: bytes) -> tuple[str, str] | None:
    """Return the name of the unsupported format that begins with these bytes, and advice to the user; None if the
    file may be text with rows."""
    if not head.strip():
        return "an empty file", NAME_THE_ROWS
    for beginning, kind_and_advice in FOREIGN.items():
        if head.startswith(beginning):
            return kind_and_advice
    if b"\x00" in head and not head.startswith(UTF_16):
        return "no text in UTF-8, UTF-16 or GB18030 (GBK)", f"save it as UTF-8, or {NAME_THE_ROWS}"
    if _first_line(head).startswith("<"):
        return "a web page or XML, which some programs call a spreadsheet", SAVE_AS_XLSX
    return None


def refuse_bomb(path: Path) -> None:
    """Raise a DataError if a zipped document unpacks to more than UNCOMPRESSED_LIMIT bytes, or is not readable."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except ZIP_ERRORS as error:
        reason = f"not a readable document ({error}). Save it again and retry."
        raise DataError(f"{path}: {reason}") from error
    if size > UNCOMPRESSED_LIMIT:
        raise DataError(f"{path}: unpacks to {size >> 20} MB, more than {UNCOMPRESSED_LIMIT >> 20} MB. Split it.")


def zipped_kind(path: Path) -> str:
    """Return the kind of a zipped document that is not an .xlsx; empty if no kind is recognised."""
    with suppress(*ZIP_ERRORS), zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        return next((kind for part, kind in ZIPPED.items() if part in names), "")
    return ""


def _head(path: Path, size: int = HEAD) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(size)


def _first_line(head: bytes) -> str:
    """Return the first line that is not blank. Callers need only its ASCII characters, so the encoding need not be
    known."""
    encoding = "utf-16" if head.startswith(UTF_16) else "latin-1"
    text = head.removeprefix(b"\xef\xbb\xbf").decode(encoding, "replace")
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
