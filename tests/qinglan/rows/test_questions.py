"""Any sheet becomes typed questions; what is none says why, before it costs anything."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook

from qinglan.errors import DataError
from qinglan.files.files import dump_line
from qinglan.rows.questions import Columns, count_rows, read_questions
from qinglan.rows.rows import QuarantinedRow, Question
from qinglan.tables.file_formats import OLE

HEADER = ["编号", "对话编号", "问题", "用户画像", "历史摘要", "标准段落", "划分"]


def sheet(tmp_path: Path, *rows: list[Any], header: list[str] = HEADER) -> Path:
    book = Workbook()
    page = book.active
    assert page is not None
    for row in (header, *rows):
        page.append(row)
    path = tmp_path / "questions.xlsx"
    book.save(path)
    return path


def read(path: Path) -> list[Question | QuarantinedRow]:
    return list(read_questions(path, Columns(), "fivedoctors"))


def test_a_full_row_becomes_a_question(tmp_path: Path) -> None:
    path = sheet(
        tmp_path,
        ["a1", "c1", "那它一天吃几次？", "宝妈", "咨询虾青素", "kb-1；kb-2", "train"],
        [1001.0, 7, "怎么吃", "NaN", "nan", None, None],
    )

    assert read(path) == [
        Question(
            id="a1", tenant_id="fivedoctors", conversation_id="c1", question="那它一天吃几次？",
            user_profile="宝妈", history_summary="咨询虾青素", gold=("kb-1", "kb-2"), split="train",
        ),
        Question(id="1001", tenant_id="fivedoctors", conversation_id="7", question="怎么吃"),
    ]  # fmt: skip


def test_only_the_question_column_is_needed(tmp_path: Path) -> None:
    [row] = read(sheet(tmp_path, ["怎么吃"], header=["问题"]))

    assert isinstance(row, Question)
    assert (row.id, row.conversation_id, row.history_summary) == ("row-2", "row-2", "")


@pytest.mark.parametrize(
    ("cell", "reason"),
    [(None, "empty"), ("  ", "empty"), ("nan", "empty"), (True, "not text"),
     ("\u200b\u200d\ufeff", "empty"), ("\u3164 \u2800", "empty"), ("\u202e\u00ad", "empty"),
     ("\u0301\ufe0f", "empty"),
     ("=A1", "formula"), ("长" * 2001, "too long")],
)  # fmt: skip
def test_a_row_without_a_question_is_quarantined_with_its_reason(tmp_path: Path, cell: object, reason: str) -> None:
    bad, good = read(sheet(tmp_path, ["a", "c", cell, "x"], ["b", "c", "怎么吃", "x"]))

    assert isinstance(bad, QuarantinedRow) and isinstance(good, Question)
    assert (bad.reason, bad.where) == (reason, "questions.xlsx row 2")


def test_a_formula_beside_the_question_quarantines_the_row_too(tmp_path: Path) -> None:
    [row] = read(sheet(tmp_path, ["a", "c", "怎么吃", None, "=B2"]))

    assert isinstance(row, QuarantinedRow)
    assert row.reason == "formula"


@pytest.mark.parametrize("cell", ["#REF!", "#N/A", "#VALUE!", "#NAME?", "#DIV/0!"])
def test_a_spreadsheets_error_is_named_with_its_row_and_column(tmp_path: Path, cell: str) -> None:
    question, history = read(sheet(tmp_path, ["a", "c", cell], ["b", "c", "怎么吃", "", cell]))

    assert isinstance(question, QuarantinedRow)
    assert (question.where, question.reason) == ("questions.xlsx row 2", "sheet error")
    if cell == "#N/A":
        assert isinstance(history, Question) and not history.history_summary, "a look-up that found nothing"
    else:
        assert isinstance(history, QuarantinedRow) and history.reason == "sheet error"


def test_an_id_twice_is_an_error_that_names_both_rows(tmp_path: Path) -> None:
    path = sheet(tmp_path, ["a", "c", "怎么吃"], ["b", "c", "几次"], ["a", "d", "多少"])

    with pytest.raises(DataError, match=r"row 4: id 'a' is already used by questions.xlsx row 2"):
        read(path)


def test_an_unknown_split_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="split 'holdout' is none of train, dev, test"):
        read(sheet(tmp_path, ["a", "c", "怎么吃", "", "", "", "holdout"]))


@pytest.mark.parametrize(
    ("name", "split"), [("训练", "train"), ("Validation", "dev"), ("测试集", "test"), ("", None)]
)
def test_a_split_may_have_its_usual_names(tmp_path: Path, name: str, split: str | None) -> None:
    [row] = read(sheet(tmp_path, ["a", "c", "怎么吃", "", "", "", name]))

    assert isinstance(row, Question) and row.split == split


@pytest.mark.parametrize(("cell", "text"), [(42, "42"), (10086.0, "10086"), (0.5, "0.5")])
def test_a_typed_number_is_a_question(tmp_path: Path, cell: float, text: str) -> None:
    [row] = read(sheet(tmp_path, ["a", "c", cell]))

    assert isinstance(row, Question) and row.question == text


def test_a_cell_takes_two_hundred_gold_ids(tmp_path: Path) -> None:
    ids = [f"0f8fad5b-d9cb-469f-a165-70867728950e-{at:03}" for at in range(200)]
    [row] = read(sheet(tmp_path, ["a", "c", "怎么吃", "", "", ",".join(ids)]))

    assert isinstance(row, Question) and row.gold == tuple(ids)


def test_a_comma_inside_of_an_id_has_an_escape_and_a_list_needs_none(tmp_path: Path) -> None:
    escaped = read(sheet(tmp_path, ["a", "c", "怎么吃", "", "", r"手册\,第一章,docs\a.md；k\;2"]))
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"question": "怎么吃", "gold": ["手册,第一章", r"docs\a.md", "k;2"]}))

    for row in (*escaped, *read(path)):
        assert isinstance(row, Question) and row.gold == ("手册,第一章", r"docs\a.md", "k;2")


TURNS = [
    {"role": "system", "content": "你是客服"},
    {"role": "user", "content": "有虾青素吗"},
    {"role": "assistant", "content": "有的，\n两种"},
]


@pytest.mark.parametrize("written", [json.dumps(TURNS), repr(TURNS)], ids=["JSON", "Python"])
def test_an_exported_conversation_becomes_lines_of_both_sides(tmp_path: Path, written: str) -> None:
    path, book = tmp_path / "q.jsonl", sheet(tmp_path, ["a", "c", "怎么吃", "", written])
    path.write_text(json.dumps({"question": "怎么吃", "history_summary": TURNS}))

    for row in (*read(path), *read(book)):
        assert isinstance(row, Question) and row.history_summary == "用户：有虾青素吗\n助手：有的， 两种"


@pytest.mark.parametrize(
    "text", ["[{", "[{'role': open('x')}]", r"[{'a': '\d'}]", "[" * 9000, '[{"role": "user"}]', "[{}]"]
)
def test_a_cell_that_only_begins_like_a_conversation_stays_text(tmp_path: Path, text: str) -> None:
    [row] = read(sheet(tmp_path, ["a", "c", "怎么吃", "", text]))

    assert isinstance(row, Question) and row.history_summary == text


def test_a_json_list_of_objects_is_read_as_jsonl_is(tmp_path: Path) -> None:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps([{"问题": "怎么吃"}, {"question": "几次", "gold": ["k1"]}]), encoding="utf-8-sig")

    assert [row.question for row in read(path)] == ["怎么吃", "几次"]
    path.write_text("[1]")
    with pytest.raises(DataError, match="element 1: expected an object, found int"):
        read(path)


def test_a_sheet_without_rows_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no rows below the header"):
        read(sheet(tmp_path))


def test_jsonl_is_read_by_the_sheets_names_and_by_ours(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    by_sheet = {"编号": "a", "问题": "怎么吃", "标准段落": "k1"}
    by_field = {"id": "b", "question": "怎么吃", "gold": ["k1"]}
    path.write_text("\n".join(json.dumps(r, ensure_ascii=False) for r in (by_sheet, by_field)), encoding="utf-8")

    first, second = read(path)

    assert first.model_dump(exclude={"id", "conversation_id"}) == second.model_dump(exclude={"id", "conversation_id"})
    assert count_rows(path, Columns()) == 2


def test_jsonl_in_another_encoding_is_an_error_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes('{"question": "怎么吃"}\n'.encode("gbk"))

    with pytest.raises(DataError, match=r"q\.jsonl:1: byte .* not UTF-8 .*GBK"):
        read(path)


@pytest.mark.parametrize("line", ["{", "[1]", '"text"', "问题"])
def test_a_line_that_is_no_object_is_an_error(tmp_path: Path, line: str) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(line, encoding="utf-8")

    with pytest.raises(DataError, match=r"q\.jsonl:1:"):
        read(path)


FOREIGN = {
    "an old .xls spreadsheet, or one with a password": OLE + bytes(600),
    "a web page or XML": b"<html><table><tr><td>1</td></tr></table></html>",
    "an SQLite database": b"SQLite format 3\0" + bytes(100),
    "a picture (PNG)": b"\x89PNG\r\n\x1a\n",
    "a PDF document": b"%PDF-1.4\n%%EOF",
    "an empty file": b"",
    "no text in UTF-8, UTF-16 or GB18030 (GBK)": bytes(range(16)),
}


@pytest.mark.parametrize("name", ["questions.xlsx", "questions", "questions.xls", "questions.csv"])
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_of_another_kind_is_told_by_its_content_and_not_by_its_name(
    tmp_path: Path, kind: str, name: str
) -> None:
    (tmp_path / name).write_bytes(FOREIGN[kind])

    with pytest.raises(DataError, match=f"{name}: this is {re.escape(kind)}.* is needed: .*(xlsx|JSONL|the rows)"):
        read(tmp_path / name)


def test_a_spreadsheet_is_one_whatever_its_name(tmp_path: Path) -> None:
    for name in ("questions", "questions.csv", "questions.xls"):
        path = sheet(tmp_path, ["怎么吃"], header=["问题"]).rename(tmp_path / name)

        assert [row.question for row in read(path)] == ["怎么吃"]


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "none.xlsx")


def test_half_a_character_quarantines_the_row_and_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "怎么\\ud800吃"}\n{"question": "几次"}\n', encoding="utf-8")

    bad, good = read(path)

    assert isinstance(bad, QuarantinedRow) and isinstance(good, Question)
    assert bad.reason == "broken text"
    assert json.loads(dump_line(bad))["question"] == "怎么?吃"
