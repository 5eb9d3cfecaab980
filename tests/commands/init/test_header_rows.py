"""A banner above the names of columns, workbooks of several sheets, and files of LLaMA-Factory."""

import json
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook

from commands.init.cli import lines_of_data
from commands.init.documents.documents import read_documents
from commands.init.profiles import Answers
from commands.init.setup import read_data, readme, tenant_folder
from commands.init.sheet_formats import read_records
from qinglan.errors import ConfigError, DataError
from qinglan.rows.questions import Columns, read_questions
from qinglan.rows.rows import Question
from qinglan.style.file_prediction import target_file

HEADER, FIRST = ["Question", "History", "Date"], ["how long", "fish oil", "2025"]
Rows = list[list[Any]]


def book(path: Path, sheets: dict[str, Rows], merged: str = "") -> Path:
    workbook = Workbook()
    workbook.remove(workbook.worksheets[0])
    for name, rows in sheets.items():
        page = workbook.create_sheet(name)
        for row in rows:
            page.append(row)
        if merged:
            page.merge_cells(merged)
    workbook.save(path)
    return path


@pytest.mark.parametrize(
    ("rows", "merged", "header"),
    [
        ([["Customer questions Q3"], [], HEADER, FIRST], "", 3),
        ([["Customer questions Q3"], HEADER, FIRST], "A1:C1", 2),
        ([["Export"], ["by", "Ann"], [], HEADER, FIRST], "A1:C1", 4),
        ([[], [], HEADER, FIRST], "", 3),
        ([[None, None, "Export"], HEADER, FIRST], "", 2),
        ([HEADER, FIRST], "", 1),
        ([HEADER, ["question", "history", "date"]], "", 1),
        ([["n"], ["m"], ["l"], ["k"], ["j"], ["i"], ["h"], ["g"], ["f"], HEADER, FIRST], "", 10),
    ],
)
def test_a_banner_above_the_names_of_columns_is_left_out_and_told(
    tmp_path: Path, rows: Rows, merged: str, header: int
) -> None:
    path = book(tmp_path / "q.xlsx", {"a": rows}, merged)

    records = read_records(path)
    read = [row for row in read_questions(path, Columns(question="Question"), "acme") if isinstance(row, Question)]

    assert [list(row) for row in records.rows] == [HEADER]
    assert [row.question for row in read] == [records.rows[0]["Question"]]
    message = f"Row {header} is taken for the names of columns; the rows above it are left out."
    assert records.remarks == (() if header == 1 else (message,))


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([["客户原话"], ["怎么吃"], ["问题"]], ["客户原话"]),  # one column: its texts may be anything
        ([["客户原话", "备注"], ["怎么吃", "no"]], ["客户原话", "备注"]),
        ([["原话", "备注", "标签"], ["怎么退", "no", "售后"]], ["原话", "备注", "标签"]),
        ([["n"]] * 10 + [HEADER, FIRST], ["n"]),  # too far below
    ],
)
def test_a_row_of_data_is_not_taken_for_names(tmp_path: Path, rows: Rows, names: list[str]) -> None:
    assert list(read_records(book(tmp_path / "q.xlsx", {"a": rows})).rows[0]) == names


@pytest.mark.parametrize("merged", ["A3:A4", "A2:B2", "A1:A9"])
def test_merged_cells_that_are_no_banner_are_refused(tmp_path: Path, merged: str) -> None:
    path = book(tmp_path / "q.xlsx", {"a": [["Export"], HEADER, FIRST, FIRST]}, merged)

    with pytest.raises(DataError, match=f"{merged} are merged"):
        read_records(path)


def test_a_banner_above_a_knowledge_base_is_left_out(tmp_path: Path) -> None:
    book(tmp_path / "kb.xlsx", {"a": [["Answers 2025"], ["标题", "内容"], ["清洗", "手洗。"]]}, "A1:B1")

    assert [passage.content for passage in read_documents([tmp_path]).passages] == ["手洗。"]


NAMES, WASH, DRY = ["标题", "内容"], ["清洗", "手洗。"], ["晾干", "阴干。"]


@pytest.mark.parametrize(
    ("sheets", "contents", "left_out"),
    [
        ({"背包": [NAMES, WASH], "帐篷": [NAMES, DRY]}, ["手洗。", "阴干。"], ()),
        ({"notes": [["read me"], ["nothing"]], "帐篷": [NAMES, DRY]}, ["阴干。"], ("notes is not read: no column",)),
        ({"帐篷": [NAMES, DRY], "Sheet2": [], "Sheet3": [NAMES]}, ["阴干。"], ()),
        ({"a": [NAMES, WASH], "b": [["Answers"], NAMES, DRY], "c": [["text"], ["平铺。"]]},
         ["手洗。", "阴干。", "平铺。"], ()),
        ({"a": [NAMES, WASH], "b": [["id", *NAMES], [7, *WASH], [7, *DRY]]}, ["手洗。"],
         ("The sheet b is not read: row 2: id '7' is used in row 1 already",)),
        ({"a": [NAMES, WASH], "=1+1": [["名录"], ["x"]], "b": [["x", "x"], ["1", "2"]]}, ["手洗。"],
         ("=1+1 is not read", "b is not read")),
    ],
)  # fmt: skip
def test_all_sheets_of_a_knowledge_base_are_read_and_the_others_are_named(
    tmp_path: Path, sheets: dict[str, Rows], contents: list[str], left_out: tuple[str, ...]
) -> None:
    read = read_documents([book(tmp_path / "kb.xlsx", sheets)])

    [report] = read.files
    assert [passage.content for passage in read.passages] == contents
    assert len({passage.id for passage in read.passages}) == len(contents) == report.passages
    assert {passage.metadata["sheet"] for passage in read.passages} <= sheets.keys()
    assert len(report.remarks) == len(left_out)
    assert all(reason in line for reason, line in zip(left_out, report.remarks, strict=True))


def test_a_hidden_sheet_of_a_knowledge_base_is_not_read(tmp_path: Path) -> None:
    workbook = Workbook()
    for page, rows in zip(
        (workbook.active, workbook.create_sheet("draft")), ([NAMES, WASH], [NAMES, DRY]), strict=True
    ):
        assert page is not None
        for row in rows:
            page.append(row)
    workbook.worksheets[1].sheet_state = "hidden"
    workbook.save(tmp_path / "kb.xlsx")

    assert [passage.id for passage in read_documents([tmp_path / "kb.xlsx"]).passages] == ["kb.xlsx#1"]


@pytest.mark.parametrize(
    ("sheets", "message"),
    [
        ({"a": [["id", *NAMES], [7, *WASH]], "b": [["id", *NAMES], [7, *DRY]]}, "'7' is used in the sheets a and b"),
        ({"a": [["x"], ["1"]], "b": [["y"], ["2"]]}, "no text(.|\n)*sheet a is not read: no column(.|\n)*sheet b is"),
        ({"a": [], "b": []}, "holds no text"),
    ],
)
def test_a_workbook_without_passages_or_with_an_id_twice_is_refused(
    tmp_path: Path, sheets: dict[str, Rows], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_documents([book(tmp_path / "kb.xlsx", sheets)])


def test_sheets_that_are_not_read_are_on_the_screen_and_in_the_tenants_readme(tmp_path: Path) -> None:
    questions = book(tmp_path / "q.xlsx", {"a": [HEADER, *[[f"how long {n}", "", "2025"] for n in range(9)]]})
    data = read_data("acme", questions, [book(tmp_path / "kb.xlsx", {"a": [NAMES, WASH], "notes": [["x"], ["1"]]})])

    message = "kb.xlsx: The sheet notes is not read: no column is called content"
    assert any(line.startswith("! ") and message in line for line in lines_of_data(data))
    text = readme("acme", data, Answers(language="en", domain="d", teacher="gpt", rag="", training="cpu"))
    assert "The sheet notes is not read: no column is called content" in text


def test_a_sheet_of_a_workbook_is_read_by_its_name(tmp_path: Path) -> None:
    path = book(tmp_path / "q.xlsx", {"notes": [["read me"], ["nothing"]], "Q 3": [HEADER, FIRST]})

    records = read_records(path, sheet="Q 3")
    data = read_data("acme", path, (), sheet_name="Q 3")

    assert (records.rows, records.direct) == ([dict(zip(HEADER, FIRST, strict=True))], False)
    assert any("its rows are in questions.jsonl" in note for note in data.guess.notes)
    with pytest.raises(DataError, match=r"no sheet 'Q4' can be seen; there are notes, Q 3"):
        read_records(path, sheet="Q4")
    with pytest.raises(DataError, match="Only the sheet notes is read, and not Q 3: --sheet NAME reads another one"):
        read_data("acme", path, ())


@pytest.mark.parametrize("name", ["q.csv", "q.jsonl"])
def test_a_sheets_name_for_a_file_without_sheets_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"question": "a"}' if name == "q.jsonl" else "question\na\n")

    with pytest.raises(DataError, match="--sheet a names a sheet of a workbook, and this is none"):
        read_records(tmp_path / name, sheet="a")


ALPACA = {"instruction": "那它一天吃几次", "input": "", "output": "两次", "system": "你是客服。" * 40,
          "history": [["有虾青素吗", "有的"], ["多少钱", "99元"]]}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "question", "history"),
    [
        ({}, "那它一天吃几次", "用户：有虾青素吗\n助手：有的\n用户：多少钱\n助手：99元"),
        ({"input": "成人"}, "那它一天吃几次\n成人", "用户：有虾青素吗\n助手：有的\n用户：多少钱\n助手：99元"),
        ({"history": []}, "那它一天吃几次", ""), ({"history": None, "input": None}, "那它一天吃几次", ""),
    ],
)  # fmt: skip
def test_an_alpaca_file_is_read(tmp_path: Path, change: dict[str, Any], question: str, history: str) -> None:
    path = tmp_path / "alpaca.json"
    path.write_text(json.dumps([ALPACA | change, ALPACA | {"history": []}], ensure_ascii=False), encoding="utf-8")

    data = read_data("acme", path, ())

    assert (data.questions[0].question, data.questions[0].history_summary) == (question, history)
    assert not data.records.direct


def test_a_sharegpt_file_is_read(tmp_path: Path) -> None:
    turns = [
        {"from": "human", "value": "有虾青素吗"}, {"from": "gpt", "value": "有的"},
        {"from": "function_call", "value": "{}"}, {"from": "observation", "value": "1"},
        {"from": "human", "value": "那它一天吃几次"}, {"from": "gpt", "value": "两次"},
    ]  # fmt: skip
    record = {"conversations": turns, "system": "你是客服。" * 40, "tools": "[" + "x" * 200 + "]"}
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps([record, record], ensure_ascii=False), encoding="utf-8")

    data = read_data("acme", path, ())

    assert [row.question for row in data.questions] == ["有虾青素吗", "那它一天吃几次"] * 2
    assert data.questions[1].history_summary == "用户：有虾青素吗\n助手：有的"


@pytest.mark.parametrize(
    "address", ["https://example.com/x.csv", "s3://bucket/x.csv", "HTTP://a/x", "https://u:p@h/x?k=1"]
)
def test_an_address_in_place_of_a_file_is_named_as_one(address: str) -> None:
    path = Path(address)
    for read in (
        lambda: read_records(path), lambda: read_documents([path]), lambda: target_file(path, None),
        lambda: list(read_questions(path, Columns(), "acme")),
    ):  # fmt: skip
        with pytest.raises(DataError, match="this is an address, and no file is fetched") as refused:
            read()
        assert "u:p" not in str(refused.value) and "k=1" not in str(refused.value)


@pytest.mark.parametrize("name", ["fivedoctors", "chengla"])
def test_a_sample_tenant_is_not_hidden_by_a_new_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match=f"'{name}' is a sample tenant of this project"):
        tenant_folder(name)


@pytest.mark.parametrize(
    ("language", "gold", "step", "none"),
    [
        ("en", "k1", "3. All questions have gold passages in `gold`.", "None was named"),
        ("en", "", "3. Label more questions in `gold`", "None was named"),
        ("zh", "k1", "3. 所有问题都已在 `gold` 标注标准段落。", "没有指定"),
        ("zh", "", "3. 给更多的问题标上 `gold`", "没有指定"),
    ],
)
def test_the_readme_says_nothing_that_is_not_so(
    tmp_path: Path, language: Any, gold: str, step: str, none: str
) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps({"question": f"q{n}", "gold": gold}) + "\n" for n in range(6)))
    answers = Answers(language=language, domain="d", teacher="gpt", rag="", training="cpu")

    text = readme("acme", read_data("acme", path, ()), answers)

    assert step in text and none in text
    assert "\n-\n" not in text and "{" not in text


PAIRS = [["有虾青素吗", "有的"], ["多少钱", ""]]


@pytest.mark.parametrize("history", [PAIRS, json.dumps(PAIRS, ensure_ascii=False), repr(PAIRS)])
def test_pairs_of_question_and_answer_are_a_history(tmp_path: Path, history: Any) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"question": "那它一天吃几次", "history_summary": history}) + "\n", encoding="utf-8")

    [row] = read_questions(path, Columns(), "acme")

    assert isinstance(row, Question) and row.history_summary == "用户：有虾青素吗\n助手：有的\n用户：多少钱"


@pytest.mark.parametrize("history", [[["a"]], [["a", "b", "c"]], [["a", 1]], [["a", None]], [[["a"], "b"]], [[]]])
def test_a_history_of_other_lists_is_refused_with_the_line(tmp_path: Path, history: Any) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"question": "q", "history_summary": history}) + "\n", encoding="utf-8")

    with pytest.raises(DataError, match=r"q\.jsonl:1: 'history_summary' holds an object or a list of lists"):
        list(read_questions(path, Columns(), "acme"))
