"""Sheets that would be read wrong without a word, or for hours: one row each, and what is said of it."""

import contextlib
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook

from qinglan.errors import DataError
from qinglan.tables import sheet_checks
from qinglan.tables.file_formats import refuse_bomb
from qinglan.tables.sheet_reader import Formula
from qinglan.tables.tables import read_table

SHEET, STRINGS = "xl/worksheets/sheet1.xml", "xl/sharedStrings.xml"
Change = Callable[[bytes], bytes]
MAIN = b'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'


def book(path: Path, prepare: Callable[[Workbook], object] = lambda workbook: None) -> Path:
    workbook = Workbook()
    for row in (["问题", "画像"], ["怎么吃", "宝妈"], ["几次", "宝爸"]):
        workbook.active.append(row)  # type: ignore[union-attr]
    prepare(workbook)
    workbook.save(path)
    return with_shared_texts(path)


def with_shared_texts(path: Path) -> Path:
    """The first sheet's texts in the table that cells share, as spreadsheet programs write them."""
    texts: list[bytes] = []

    def share(match: re.Match[bytes]) -> bytes:
        texts.append(match[1])
        return b't="s"><v>%d</v>' % (len(texts) - 1)

    with zipfile.ZipFile(path) as old:
        parts = {item.filename: old.read(item) for item in old.infolist()}
    parts[SHEET] = re.sub(rb't="inlineStr"><is>(.*?)</is>', share, parts[SHEET])
    parts[STRINGS] = b"<sst " + MAIN + b">" + b"".join(b"<si>%s</si>" % text for text in texts) + b"</sst>"
    kind = b"application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    override = b'<Override PartName="/%s" ContentType="%s"/></Types>' % (STRINGS.encode(), kind)
    parts["[Content_Types].xml"] = parts["[Content_Types].xml"].replace(b"</Types>", override)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in parts.items():
            new.writestr(name, content)
    return path


def edited(path: Path, part: str, change: Change, twice: bool = False) -> Path:
    """The same file with a part changed, or with a second part of that name."""
    out = path.with_name(f"edited-{path.name}")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            content = old.read(item)
            if item.filename == part and twice:
                new.writestr(item.filename, content)
            new.writestr(item.filename, change(content) if item.filename == part else content)
    return out


def second_sheet(state: Any, rows: list[list[object]], hide: int = 0) -> Callable[[Workbook], None]:
    def prepare(workbook: Workbook) -> None:
        page = workbook.create_sheet("另一页")
        for row in rows:
            page.append(row)
        workbook.worksheets[hide].sheet_state = state

    return prepare


def merged(content: bytes) -> bytes:
    return content.replace(b"</sheetData>", b'</sheetData><mergeCells><mergeCell ref="A2:A3"/></mergeCells>')


def prefixed(content: bytes) -> bytes:
    """As Open XML SDK writes: each element of the sheet with a prefix."""
    body = content.replace(b"</", b"<\0").replace(b"<", b"<x:").replace(b"<x:\0", b"</x:").replace(b"<x:?", b"<?")
    return body.replace(b"<x:!", b"<!").replace(MAIN, MAIN.replace(b"xmlns", b"xmlns:x"))


def utf16(content: bytes) -> bytes:
    text = content.decode()
    body = text[text.index("?>") + 2 :] if text.startswith("<?") else text
    return f'<?xml version="1.0" encoding="UTF-16"?>{body}'.encode("utf-16")


def broken_lines(content: bytes) -> bytes:
    return content.replace(b"<mergeCell ref", b"<mergeCell\n\tref").replace(b'"A2:A3"', b"\n'A2:A3'\n")


def replaced(old: bytes, new: bytes) -> Change:
    def change(content: bytes) -> bytes:
        assert old in content
        return content.replace(old, new)

    return change


DOCTYPE = b'<!DOCTYPE worksheet [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><worksheet'
FORMULA = b'<c r="A2"><f t="shared" ref="A2:A3" si="0">' + b"(" * 50_000 + b"</f></c>"
SAME_FORMULA = b'<c r="A3"><f t="shared" si="0"/></c>'
A2, A3 = b'<c r="A2" t="s"><v>2</v></c>', b'<c r="A3" t="s"><v>4</v></c>'

ATTACKS: list[tuple[str, str, Change, str]] = [
    # name, part, change, what is said
    ("merged cells", SHEET, merged, r"A2:A3 are merged.*取消合并"),
    ("merged cells with a namespace prefix", SHEET, lambda c: prefixed(merged(c)), r"A2:A3 are merged"),
    ("merged cells with line breaks in the tag", SHEET, lambda c: broken_lines(merged(c)), r"A2:A3 are merged"),
    ("merged cells in UTF-16", SHEET, lambda c: utf16(merged(c)), r"A2:A3 are merged"),
    ("merged cells in UTF-16 with a prefix", SHEET, lambda c: utf16(prefixed(merged(c))), r"A2:A3 are merged"),
    ("merged cells by a character's code", SHEET,
        lambda c: merged(c).replace(b'"A2:A3"', b'"&#65;2:A3"'), r"A2:A3 are merged"),
    ("the strict form", SHEET,
        replaced(MAIN, b'xmlns="http://purl.oclc.org/ooxml/spreadsheetml/main"'), "Strict Open XML"),
    ("a cell twice", SHEET, replaced(b'r="B2"', b'r="A2"'), "row 2 holds a cell twice"),
    ("a cell of another row", SHEET, replaced(b'r="B2"', b'r="B3"'), "row 2 holds a cell twice, or another row's"),
    ("a row twice", SHEET, replaced(b'<row r="3"', b'<row r="2"'), "row 2 after row 2"),
    ("rows that go back", SHEET,
        lambda c: c.replace(b'<row r="2"', b'<row r="7"').replace(b'2" t', b'7" t'), "row 3 after row 7"),
    ("a shared text that is not there", SHEET, replaced(b"<v>2</v>", b"<v>999</v>"), "cannot be read after row 1"),
    ("a number that is none", SHEET,
        replaced(A2, b'<c r="A2"><v>zwei</v></c>'), "cannot be read after row 1"),
    ("no first row", SHEET, lambda c: re.sub(rb'<row r="1".*?</row>', b"", c), r"no column '问题' in the first row"),
    ("entities", SHEET, replaced(b"<worksheet", DOCTYPE), "declares entities"),
    ("entities in the texts", STRINGS, replaced(b"<sst", DOCTYPE.replace(b"worksheet", b"sst")), "declares entities"),
    ("a sheet cut short", SHEET, lambda c: c[: len(c) * 2 // 3], "cannot be read after row"),
    ("a row far below all rows", SHEET, replaced(b'<row r="3"', b'<row r="99999999999"'), "row 99999999999 after"),
    ("a row with a number of a thousand digits", SHEET,
        replaced(b'<row r="3"', b'<row r="' + b"9" * 5000 + b'"'), "cannot be read after row 2"),
    ("more texts than a table needs", STRINGS, replaced(b"</sst>", b"<si/>" * 1_100 + b"</sst>"), "different texts"),
    ("more cells than a table needs", SHEET,
        replaced(b"</sheetData>", b"<row>" + b"<c/>" * 4_100 + b"</row></sheetData>"), "too many"),
    ("more elements in a part that no sheet needs", "xl/theme/theme1.xml",
        lambda c: b"<a>" + b"<b/>" * 4_100 + b"</a>", "too many"),
    ("one text of many runs", STRINGS,
        replaced(b"</sst>", b"<si>" + b"<r/>" * 4_100 + b"</si></sst>"), "too many"),
    ("depth without end", STRINGS, replaced(b"</sst>", b"<a>" * 100_000), "nested deeper"),
    ("a namespace as deep", SHEET, replaced(b"<sheetData>", b"<sheetData>" + b'<y xmlns="u">' * 99), "nested deeper"),
]  # fmt: skip


@pytest.mark.parametrize("part, change, message", [row[1:] for row in ATTACKS], ids=[row[0] for row in ATTACKS])
def test_a_sheet_with_two_meanings_or_endless_work_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, change: Change, message: str
) -> None:
    """The limits are a thousand times smaller here."""
    monkeypatch.setattr(sheet_checks, "ELEMENT_LIMIT", 4_000)
    monkeypatch.setattr(sheet_checks, "STRING_LIMIT", 1_000)
    path = edited(book(tmp_path / "q.xlsx"), part, change)

    with pytest.raises(DataError, match=message):
        list(read_table(path, ["问题"]))


@pytest.mark.parametrize("change", [prefixed, utf16, lambda content: utf16(prefixed(content))])
def test_the_same_sheet_written_in_another_way_has_the_same_rows(tmp_path: Path, change: Change) -> None:
    path = book(tmp_path / "q.xlsx")

    assert list(read_table(edited(path, SHEET, change))) == list(read_table(path))
    assert len(list(read_table(path))) == 2


def test_a_part_twice_is_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = edited(book(tmp_path / "q.xlsx"), SHEET, lambda content: content, twice=True)

    with pytest.raises(DataError, match=r"holds 'xl/worksheets/sheet1\.xml' twice"):
        list(read_table(path))


@pytest.mark.parametrize("state", ["hidden", "veryHidden"])
def test_the_sheet_that_is_read_is_the_first_that_a_person_sees(tmp_path: Path, state: str) -> None:
    path = book(tmp_path / "q.xlsx", second_sheet(state, [["问题"], ["看得见"]]))

    assert [cells["问题"] for _, cells in read_table(path, ["问题"])] == ["看得见"]


def test_a_hidden_second_sheet_is_none_of_our_business(tmp_path: Path) -> None:
    path = book(tmp_path / "q.xlsx", second_sheet("hidden", [["问题"], ["旧的"]], hide=1))

    assert len(list(read_table(path, ["问题"]))) == 2


def test_a_second_sheet_with_the_same_columns_is_not_lost_without_a_word(tmp_path: Path) -> None:
    path = book(tmp_path / "q.xlsx", second_sheet("visible", [["画像", "问题"], ["", "丢了"]]))
    notes = book(tmp_path / "notes.xlsx", second_sheet("visible", [["说明"], ["只是备注"]]))

    with pytest.raises(DataError, match=r"另一页.* only one sheet is read"):
        list(read_table(path, ["问题"]))
    assert len(list(read_table(notes, ["问题"]))) == 2


def far_cell(content: bytes) -> bytes:
    return content.replace(b"</sheetData>", b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>')


def test_a_cell_in_the_last_corner_is_one_cell(tmp_path: Path) -> None:
    path = edited(book(tmp_path / "q.xlsx"), SHEET, far_cell)

    assert len(list(read_table(path, ["问题"]))) == 2


def test_a_long_formula_that_cells_share_is_not_worked_out(tmp_path: Path) -> None:
    path = edited(book(tmp_path / "q.xlsx"), SHEET, lambda c: c.replace(A2, FORMULA).replace(A3, SAME_FORMULA))

    [(_, first), (_, second)] = read_table(path)

    assert (str(first["问题"])[:5], second["问题"]) == ("=((((", "=")
    assert isinstance(second["问题"], Formula)


def directory_changed(at: int, value: bytes) -> Change:
    """Bytes of an archive whose directory has these in its first entry."""

    def change(content: bytes) -> bytes:
        entry = content.index(b"PK\x01\x02") + at
        return content[:entry] + value + content[entry + len(value) :]

    return change


BROKEN_ARCHIVES: list[tuple[str, Change]] = [
    ("a version that nobody unpacks", directory_changed(6, b"\xb9\x00")),
    (
        "a name that is not UTF-8",
        lambda content: directory_changed(8, b"\x00\x08")(directory_changed(46, b"\xff")(content)),
    ),
    ("a way of packing that nobody knows", directory_changed(10, b"\x63\x00")),
    ("packed by LZMA, it says", directory_changed(10, b"\x0e\x00")),
    ("with a password", directory_changed(8, b"\x01\x00")),
    ("a directory that is cut", lambda content: content[:-40] + content[-22:]),
]


@pytest.mark.parametrize("change", [row[1] for row in BROKEN_ARCHIVES], ids=[row[0] for row in BROKEN_ARCHIVES])
def test_an_archive_with_a_broken_directory_is_refused_in_words(tmp_path: Path, change: Change) -> None:
    """The first two were found by `make fuzz`."""
    path = book(tmp_path / "q.xlsx")
    path.write_bytes(change(path.read_bytes()))

    with pytest.raises(DataError, match="not a readable"):
        list(read_table(path))
    with contextlib.suppress(DataError):  # the directory may be whole, and what it leads to not
        refuse_bomb(path)
