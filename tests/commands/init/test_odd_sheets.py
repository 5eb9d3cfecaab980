"""Sheets as people have them: without names of columns, with a name twice, in Shift-JIS, with lines of Windows."""

import json
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook

from commands.init.documents.documents import read_documents
from commands.init.setup import TenantData, read_data
from qinglan.errors import DataError
from qinglan.rows.questions import Columns, read_questions


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def notes(data: TenantData) -> str:
    return " ".join(data.guess.notes)


@pytest.mark.parametrize(
    "first", ["how do I wash it?", "怎么清洗这个背包", "where is my order", "说的话", "Nachricht"]
)
@pytest.mark.parametrize(("name", "more"), [("", ""), (",2026-01-02", ",2026-01-02"), (",客户画像", ",会员")])
def test_a_first_row_without_a_usual_name_is_an_error_until_a_person_names_the_column(
    tmp_path: Path, first: str, name: str, more: str
) -> None:
    rows = "".join(f"how much is bag {number}?{more}\n" for number in range(9))
    path = write(tmp_path / "q.csv", f"{first}{name}\n{rows}")

    with pytest.raises(DataError, match=r"No column has a usual name .*--question-column NAME"):
        read_data("acme", path, [])
    assert len(read_data("acme", path, [], {"question": first}).questions) == 9


def test_shift_jis_is_read(tmp_path: Path) -> None:
    text = "番号,質問\n" + "".join(f"{at},寝袋は洗濯機で洗えますか、{at}番です\n" for at in range(9))
    path = write(tmp_path / "q.csv", text, "cp932")

    data = read_data("acme", path, [])

    assert data.questions[0].question == "寝袋は洗濯機で洗えますか、0番です"


@pytest.mark.parametrize("kind", ["csv", "json", "xlsx"])
@pytest.mark.parametrize(("end", "shown"), [("\r\n", "\n"), ("\r", "\n"), ("\n", "\n"), ("\r\n\r\n", "\n\n")])
def test_a_line_in_a_cell_ends_with_a_line_feed(tmp_path: Path, kind: str, end: str, shown: str) -> None:
    question, path = f"有货吗{end}多少钱", tmp_path / f"q.{kind}"
    if kind == "csv":
        write(path, f'问题,历史摘要\n"{question}","用户：在吗{end}客服：在"\n')
    elif kind == "json":
        write(path, json.dumps([{"问题": question, "历史摘要": f"用户：在吗{end}客服：在"}]))
    else:
        book = Workbook()
        for cells in (["问题", "历史摘要"], [question, f"用户：在吗{end}客服：在"]):
            book.worksheets[0].append(cells)
        book.save(path)

    [row] = read_data("acme", path, []).questions

    assert (row.question, row.history_summary) == (f"有货吗{shown}多少钱", f"用户：在吗{shown}客服：在")


def test_a_line_in_a_passage_of_a_sheet_ends_with_a_line_feed(tmp_path: Path) -> None:
    [passage] = read_documents([write(tmp_path / "kb.csv", 'id,content\nk1,"a\r\nb"\n')]).passages

    assert passage.content == "a\nb"


INSTRUCTION = {"instruction": "Answer the customer.", "output": "yes"}
OTHER = {"instruction": "b", "input": "c", "output": "d"}


@pytest.mark.parametrize(
    ("records", "questions", "is_reported"),
    [
        ([INSTRUCTION | {"input": f"q{at}?"} for at in range(3)], ["q0?", "q1?", "q2?"], True),
        ([INSTRUCTION | {"input": "q?"}], ["Answer the customer.\nq?"], False),
        ([INSTRUCTION | {"input": "q?"}, INSTRUCTION], ["Answer the customer.\nq?", "Answer the customer."], False),
        ([INSTRUCTION | {"input": "q?"}, OTHER], ["Answer the customer.\nq?", "b\nc"], False),
    ],
)  # fmt: skip
def test_an_instruction_that_all_records_share_is_no_part_of_the_questions(
    tmp_path: Path, records: list[dict[str, Any]], questions: list[str], is_reported: bool
) -> None:
    data = read_data("acme", write(tmp_path / "a.json", json.dumps(records)), [])

    assert [row.question for row in data.questions] == questions
    assert is_reported == ("All records have the same instruction" in notes(data))


TWICE = "问题,备注,备注,历史摘要\n有货吗,a,b,用户：在吗\n"


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_a_name_of_unused_columns_may_be_there_twice(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "q.csv", TWICE)
    if kind == "xlsx":
        book, path = Workbook(), tmp_path / "q.xlsx"
        for line in TWICE.splitlines():
            book.worksheets[0].append(line.split(","))
        book.save(path)

    assert read_data("acme", path, []).questions[0].history_summary == "用户：在吗"
    assert len(list(read_questions(path, Columns(), "acme"))) == 1


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("问题,问题", {}), ("问题,历史摘要,历史摘要", {}), ("问题,编号,编号", {}),
        ("问题,备注,备注", {"user_profile": "备注"}), ("问题,User_Profile,User_Profile", {}),
    ],
)  # fmt: skip
def test_a_name_of_used_columns_may_not(tmp_path: Path, header: str, named: dict[str, str]) -> None:
    cells = header.count(",")
    rows = "".join(f"bag {at} how much?{',是的呢' * cells}\n" for at in range(9))

    with pytest.raises(DataError, match="appears twice"):
        read_data("acme", write(tmp_path / "q.csv", f"{header}\n{rows}"), [], named)
