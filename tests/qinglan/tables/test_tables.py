"""Spreadsheets come in as data, and go out so that no cell runs as a formula."""

import re
import zipfile
from pathlib import Path

import pytest
from openpyxl import Workbook, load_workbook

from qinglan.errors import DataError
from qinglan.tables.sheet_reader import Formula
from qinglan.tables.tables import WIDEST, cell_label, read_table, safe_cell, write_table


def sheet(path: Path, rows: list[list[object]]) -> Path:
    book = Workbook()
    page = book.active
    assert page is not None
    for row in rows:
        page.append(row)
    book.save(path)
    return path


def test_rows_come_by_column_name_with_their_numbers(tmp_path: Path) -> None:
    path = sheet(tmp_path / "q.xlsx", [["问题", "画像"], ["怎么吃", None], [None, None], ["几次", "宝妈"]])

    assert list(read_table(path)) == [
        (2, {"问题": "怎么吃", "画像": None}),
        (4, {"问题": "几次", "画像": "宝妈"}),
    ]


def test_a_formula_is_told_from_text_that_looks_like_one(tmp_path: Path) -> None:
    path = sheet(tmp_path / "q.xlsx", [["问题"], ["=1+1"]])
    book = load_workbook(path)
    book.active["A3"] = "=HYPERLINK('x')"  # type: ignore[index]
    book.active["A4"].value = "-不是公式"  # type: ignore[index]
    book.save(path)

    values = [cells["问题"] for _, cells in read_table(path)]

    assert [isinstance(value, Formula) for value in values] == [True, True, False]


def test_a_missing_column_is_named_with_those_there_are(tmp_path: Path) -> None:
    path = sheet(tmp_path / "q.xlsx", [["提问", "画像"], ["怎么吃", ""]])

    with pytest.raises(DataError, match=r"no column '问题'.*'提问', '画像'.*Rename"):
        list(read_table(path, required=["问题"]))


def test_a_column_named_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'问题' appears twice"):
        list(read_table(sheet(tmp_path / "q.xlsx", [["问题", "问题"], ["a", "b"]])))


@pytest.mark.slow
def test_a_bomb_of_300_mb_is_refused_unread(tmp_path: Path) -> None:
    path = sheet(tmp_path / "q.xlsx", [["问题"], ["怎么吃"]])
    bomb = zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1)
    with bomb as archive, archive.open("xl/bomb.xml", "w") as member:
        for _ in range(300):
            member.write(b" " * 2**20)
    assert path.stat().st_size < 2_000_000

    with pytest.raises(DataError, match="unpacks to 300 MB"):
        list(read_table(path))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"not a zip"])
def test_a_file_that_is_no_spreadsheet_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "q.xlsx"
    path.write_bytes(content)

    with pytest.raises(DataError, match=r"not a readable \.xlsx"):
        list(read_table(path))


@pytest.mark.parametrize("rows", [1, 300])
def test_columns_are_as_wide_as_what_stands_in_them(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "out.xlsx"
    with write_table(path, ["编号", "改写", "说明"]) as add:
        for number in range(rows):
            add([number, "虾青素每天吃几次", "长" * 500])

    sheet = load_workbook(path).active

    assert sheet is not None and sheet.max_row == rows + 1
    assert [sheet.column_dimensions[letter].width for letter in "ABC"] == [6, 18, WIDEST]


def test_a_sheet_without_rows_keeps_its_header(tmp_path: Path) -> None:
    with write_table(tmp_path / "out.xlsx", ["改写"]):
        pass

    assert [cell.value for cell in next(load_workbook(tmp_path / "out.xlsx").active.iter_rows())] == ["改写"]  # type: ignore[union-attr]


def test_numbers_and_plain_text_are_written_as_they_are() -> None:
    assert [safe_cell(value) for value in (-1, 0.5, None, True, "虾青素")] == [-1, 0.5, None, True, "虾青素"]


def test_a_sheet_does_not_hold_the_moment_it_was_written(tmp_path: Path) -> None:
    with write_table(tmp_path / "out.xlsx", ["改写"]) as add:
        add(["虾青素"])

    with zipfile.ZipFile(tmp_path / "out.xlsx") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        dates = re.findall(rb"\d{4}-\d\d-\d\d", archive.read("docProps/core.xml"))
    assert dates and set(dates) == {b"1980-01-01"}


def test_a_write_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), write_table(tmp_path / "out.xlsx", ["a"]) as add:
        add(["b"])
        raise RuntimeError

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["=1+1", '=HYPERLINK("http://x","y")', "+1", "-1", "@sum", "\t=1", "=cmd|' /C calc'!A0"]
)
def test_a_columns_name_that_a_spreadsheet_would_run_is_written_as_text(tmp_path: Path, name: str) -> None:
    """So is the text of a cell."""
    path = tmp_path / "out.xlsx"
    with write_table(path, [name]) as add:
        add([name])

    for row in load_workbook(path).worksheets[0].iter_rows():
        assert (row[0].data_type, row[0].value) == ("s", f"'{name}")


@pytest.mark.parametrize("character", ["\ufffe", "\uffff", "\ud800", "\udfff", "\0", "\x0b", "\x1b", "\x1f"])
def test_a_character_that_xml_refuses_does_not_make_a_sheet_unreadable(tmp_path: Path, character: str) -> None:
    path = tmp_path / "out.xlsx"
    with write_table(path, [f"问{character}题"]) as add:
        add([f"虾青{character}素"])

    assert list(read_table(path)) == [(2, {"问 题": "虾青 素"})]


@pytest.mark.parametrize("text", ["\U0001f34a", "\ufffd", "a\tb", "a\nb", "\x7f", "\u200b", "\U0010ffff"])
def test_a_character_that_xml_allows_is_written_as_it_is(tmp_path: Path, text: str) -> None:
    with write_table(tmp_path / "out.xlsx", ["问题"]) as add:
        add([f"虾{text}青"])

    assert [cells["问题"] for _, cells in read_table(tmp_path / "out.xlsx")] == [f"虾{text}青"]


@pytest.mark.parametrize("blank", ["", " ", "\n", " \n ", "\u3000", "\u200b", "\ufeff", "\xa0"])
@pytest.mark.parametrize("start", ["=1", "+1", "-1", "@a", "＝1", "＋1", "－1", "＠a"])
def test_a_formula_after_blanks_or_in_full_width_is_text(blank: str, start: str) -> None:
    assert safe_cell(blank + start) == f"'{blank}{start}"
    assert cell_label(f"'{blank}{start}") == cell_label(blank + start)
