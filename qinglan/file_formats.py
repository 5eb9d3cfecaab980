"""Files that are neither .xlsx nor JSON lines, told by their content, with advice for whoever has one."""

import zipfile
from contextlib import suppress
from pathlib import Path

from qinglan.errors import DataError

ZIP, OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
HEAD = 1 << 16
SAVE_AS_XLSX = "open it in a spreadsheet program and save it as .xlsx"
ZIPPED = {
    "xl/workbook.bin": "an .xlsb spreadsheet",
    "content.xml": "an OpenDocument file (.ods)",
    "word/document.xml": "a text document (.docx)",
    "Index/Document.iwa": "a Numbers document",
}


def is_spreadsheet(path: Path) -> bool:
    """Tell by its first bytes: a pipeline's artifact has no file ending."""
    return _head(path, len(ZIP)) == ZIP


def refuse_foreign_format(path: Path) -> None:
    """A DataError with the way to save it, where the content is of another kind than JSON."""
    if (kind_and_advice := foreign_format(_head(path))) is not None:
        kind, advice = kind_and_advice
        raise DataError(f"{path}: this is {kind}, and an .xlsx or JSONL is needed: {advice}.")


def foreign_format(head: bytes) -> tuple[str, str] | None:
    """The kind of a file that begins so, and the way to get an .xlsx or JSONL of it; None where it may be JSON."""
    if head.startswith(OLE):
        return "an old .xls spreadsheet, or one with a password", f"{SAVE_AS_XLSX}, without a password"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "text in UTF-16", "save it as UTF-8, or as .xlsx if it is a table"
    if head.startswith(b"SQLite format 3") or b"\x00" in head:
        return "no text", "name the spreadsheet or the JSONL of questions"
    text, encoding = _decoded(head.removeprefix(b"\xef\xbb\xbf"))
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if first.startswith("<"):
        return "a web page or XML, which some programs call a spreadsheet", SAVE_AS_XLSX
    if not first.startswith(("{", "[")) and any(mark in first for mark in ",;\t，"):
        return f"a table as text (CSV, in {encoding})", SAVE_AS_XLSX
    return None


def zipped_kind(path: Path) -> str:
    """Words for an archive that is another document than .xlsx; empty where its parts tell of none."""
    with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        return next((kind for part, kind in ZIPPED.items() if part in names), "")
    return ""


def _head(path: Path, size: int = HEAD) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(size)


def _decoded(head: bytes) -> tuple[str, str]:
    """The text and its encoding; the last line may be cut within a character."""
    whole = head.rpartition(b"\n")[0] or head
    for encoding, name in (("utf-8", "UTF-8"), ("gb18030", "GBK")):
        with suppress(UnicodeDecodeError):
            return whole.decode(encoding), name
    return whole.decode("utf-8", "replace"), "an unknown encoding"
