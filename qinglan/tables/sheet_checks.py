"""Checks an .xlsx before a library reads it: its XML is small enough, and no content would be lost.

parts = scan_parts(archive, "questions.xlsx")
parts["xl/worksheets/sheet1.xml"].merged       # "A2:A3", or ""

The checks use an XML parser, since the same sheet can be written with namespace prefixes, line breaks within tags, or
in UTF-16.
"""

import re
import sys
import zipfile
from collections import Counter
from typing import Any, NoReturn
from xml.parsers import expat

from qinglan.errors import DataError
from qinglan.tables.file_formats import UNCOMPRESSED_LIMIT

ELEMENT_LIMIT = 5_000_000
"""Largest number of XML elements in a file; 100,000 rows of nine columns with a text each take about 3.7 million."""

STRING_LIMIT = 1_000_000
"""Largest number of texts in the table of texts that cells share."""

DEPTH_LIMIT = 64
SHEET_NAMESPACE = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
READ_AT_ONCE = 1 << 18


class PartScan:
    """Result of the scan of one part of an .xlsx, which is a file in its archive."""

    def __init__(self) -> None:
        self.elements = self.strings = self.depth = 0
        self.namespace = ""
        """Namespace of the first element."""

        self.merged = ""
        """The range of merged cells that ends lowest."""

        self.merged_to = 0
        """Last row of the range in `merged`."""

    def add_merged(self, cells: str) -> None:
        """Store a range of merged cells, such as A1:F1, if it ends lower than all before. A range that cannot be read
        counts as the lowest."""
        digits = re.search(r"[0-9]{1,9}$", cells)
        last = int(digits[0]) if digits else sys.maxsize
        if last > self.merged_to:
            self.merged, self.merged_to = cells, last


def scan_parts(archive: zipfile.ZipFile, where: str) -> dict[str, PartScan]:
    """Scan every part of an .xlsx; a DataError if reading it would take too much memory, or if programs could read it
    differently."""
    members = archive.infolist()
    # zipfile reads the last of two entries with one name, other programs the first.
    twice = [name for name, count in Counter(member.filename for member in members).items() if count > 1]
    if twice:
        raise DataError(f"{where}: holds {twice[0]!r} twice, and programs differ in which one counts. Save it again.")
    if (size := sum(member.file_size for member in members)) > UNCOMPRESSED_LIMIT:
        _refuse_size(where, f"unpacks to {size / 2**20:.0f} MB, more than the {UNCOMPRESSED_LIMIT / 2**20:.0f} MB")
    scans: dict[str, PartScan] = {}
    elements = 0
    for member in members:
        scan = scans[member.filename] = PartScan()
        with archive.open(member) as part:
            _scan(part, scan, where, ELEMENT_LIMIT - elements)
        elements += scan.elements
    return scans


def _scan(part: Any, scan: PartScan, where: str, elements_left: int) -> None:
    """Scan a part up to its first XML error. The error is ignored, since openpyxl's parser stops there too."""

    def start(name: str, attributes: dict[str, str]) -> None:
        scan.elements += 1
        scan.depth += 1
        if scan.elements > elements_left:
            _refuse_size(where, f"has more than {ELEMENT_LIMIT:,} cells and other elements, too many")
        if scan.depth > DEPTH_LIMIT:
            raise DataError(f"{where}: nested deeper than a spreadsheet program writes. Save it again.")
        namespace, _, local = name.rpartition(" ")
        if scan.elements == 1:
            scan.namespace = namespace
        if local == "si":
            scan.strings += 1
            if scan.strings > STRING_LIMIT:
                _refuse_size(where, f"has more than {STRING_LIMIT:,} different texts, too many")
        elif local == "mergeCell":
            scan.add_merged(attributes.get("ref", "somewhere"))

    def end(name: str) -> None:
        scan.depth -= 1

    def doctype(*declaration: object) -> NoReturn:
        raise DataError(f"{where}: its XML declares entities, as no spreadsheet program does. Save it again.")

    # "Billion laughs" needs a DOCTYPE that declares entities, so any DOCTYPE is refused:
    # https://docs.python.org/3/library/xml.html#xml-vulnerabilities
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = doctype
    try:
        while block := part.read(READ_AT_ONCE):
            parser.Parse(block, False)
    except expat.ExpatError:
        return


def _refuse_size(where: str, what: str) -> NoReturn:
    raise DataError(
        f"{where}: {what} for a table of questions. Take out sheets and columns that are not needed, split the "
        "sheet, or export it as JSONL."
    )
