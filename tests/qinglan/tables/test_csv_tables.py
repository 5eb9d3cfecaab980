"""CSV as spreadsheet programs write it, and what is no CSV."""

from pathlib import Path

import pytest

from qinglan.errors import DataError
from qinglan.rows.questions import Columns, count_rows, read_questions
from qinglan.rows.rows import QuarantinedRow, Question
from qinglan.tables.csv_tables import read_csv

TEXT = '问题,用户画像\r\n"那它,一天吃几次？",50岁\r\n,\r\n=1+1,\r\n'


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "export"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030", "gbk", "utf-16", "utf-16-le"])
def test_the_usual_encodings_give_the_same_rows(tmp_path: Path, encoding: str) -> None:
    mark = b"\xff\xfe" if encoding == "utf-16-le" else b""
    path = write(tmp_path, mark + TEXT.encode(encoding))

    assert list(read_csv(path)) == [
        (2, {"问题": "那它,一天吃几次？", "用户画像": "50岁"}),
        (4, {"问题": "=1+1", "用户画像": ""}),
    ]
    assert count_rows(path, Columns()) == 2


def test_western_text_is_not_taken_for_chinese(tmp_path: Path) -> None:
    path = write(tmp_path, "question\nIsn’t it a café – or naïve?\n".encode("cp1252"))

    assert list(read_csv(path)) == [(2, {"question": "Isn’t it a café – or naïve?"})]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_the_headers(tmp_path: Path, delimiter: str) -> None:
    path = write(tmp_path, f"问题{delimiter}编号\n怎么吃{delimiter}a1\n".encode())
    [row] = read_questions(path, Columns(), "acme")

    assert isinstance(row, Question) and (row.id, row.question) == ("a1", "怎么吃")


def test_lines_may_end_as_on_an_old_mac(tmp_path: Path) -> None:
    """Found by `make fuzz`: the delimiter was looked for in all lines at once, which was an error of the library."""
    path = tmp_path / "q.csv"
    path.write_bytes("问题;画像\r一天吃几次;宝妈\r多少钱;\r".encode())

    assert list(read_csv(path)) == [
        (2, {"问题": "一天吃几次", "画像": "宝妈"}), (3, {"问题": "多少钱", "画像": ""}),
    ]  # fmt: skip


def test_a_header_that_is_longer_than_any_cell_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_text("问" * 2_000_000, encoding="utf-8")

    with pytest.raises(DataError, match="row 1 holds no names of columns: a cell of it has 2,000,000 characters"):
        list(read_csv(path))


def test_a_cell_longer_than_a_spreadsheets_sets_its_row_aside_and_no_other(tmp_path: Path) -> None:
    long = "很" * 40_000
    sheet = write(tmp_path, f"问题,历史摘要,备注\n{long},,\n怎么吃,{long},\n几次,,{long}\n".encode())

    rows = list(read_questions(sheet, Columns(), "acme"))

    assert [row.detail for row in rows[:2] if isinstance(row, QuarantinedRow)] == [
        "问题 has 40000 characters, more than 2000.", "历史摘要 has 40000 characters, more than 20000.",
    ]  # fmt: skip
    assert isinstance(rows[2], Question), "a cell that nobody reads may be long"


@pytest.mark.parametrize("end", ["", '"另一个",b'])
def test_a_quote_without_its_end_names_the_row_where_it_begins_in_a_long_sheet_too(tmp_path: Path, end: str) -> None:
    text = '问题,画像\n怎么吃,a\n"几次,b\n' + "怎么洗,a\n" * 30_000 + end

    with pytest.raises(DataError, match=r"row 3 is no row of a CSV file .*quote without its end"):
        list(read_csv(write(tmp_path, text.encode())))


def test_a_single_column_may_have_other_signs_in_its_texts(tmp_path: Path) -> None:
    for texts in (["What; now?"], ["What; now?", "How", "And; then; what"]):
        path = write(tmp_path, "\n".join(["question", *texts]).encode())

        assert [cells for _, cells in read_csv(path)] == [{"question": text} for text in texts]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("title", ["2026年导出", "2026年导出\n导出人：小王", "2026年导出||"])
def test_a_title_above_the_names_is_left_out_whatever_divides_the_cells(
    delimiter: str, title: str, tmp_path: Path
) -> None:
    text = f"{title}\n编号|问题|画像\nq1|怎么吃|a\nq2|怎么洗|\n"
    path = write(tmp_path, text.replace("|", delimiter).encode())
    rows = [1]

    assert [row.id for row in read_questions(path, Columns(), "acme")] == ["q1", "q2"]
    assert len(list(read_csv(path, (), {"问题"}.__contains__, rows.append))) == 2
    assert rows[-1] == 2 + title.count("\n")
    if "|" in title:
        assert [list(cells) for _, cells in read_csv(path)] == [["2026年导出"]] * 3
    else:
        with pytest.raises(DataError, match=r"has 3 cells.*Row 1 is taken for the names of columns"):
            list(read_csv(path))


def test_a_formula_is_set_aside_as_in_a_spreadsheet(tmp_path: Path) -> None:
    sheet = write(tmp_path, "问题,用户画像\n=1+1,\n怎么吃,=A1\n 5=3+2 对吗,-\n".encode())

    rows = list(read_questions(sheet, Columns(), "acme"))

    assert [row.reason for row in rows[:2] if isinstance(row, QuarantinedRow)] == ["formula", "formula"]
    assert isinstance(rows[2], Question) and (rows[2].question, rows[2].user_profile) == ("5=3+2 对吗", "-")


@pytest.mark.parametrize("cell", ["=_= 怎么退货", "==急== 怎么退", "=。=", "= 怎么吃"])
def test_a_face_of_signs_is_no_formula(cell: str, tmp_path: Path) -> None:
    [row] = read_questions(write(tmp_path, f"问题\n{cell}\n".encode()), Columns(), "acme")

    assert isinstance(row, Question) and row.question == cell


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x00\x01\x02\x03", "this is no text"),
        ("问题,画像\n怎么吃,a,b\n".encode(), "row 2 has 3 cells, and there are 2 columns"),
        ('问题\n"怎么吃\n几次\n'.encode(), "no row of a CSV file .*quote without its end"),
        ("问题,问题\n怎么吃,几次\n".encode(), "'问题' appears twice"),
        (b"query\nhow\n", "no column '问题' in the first row; it has 'query'"),
        (b"", "this is an empty file"),
    ],
)
def test_what_could_be_read_in_two_ways_is_an_error(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_questions(write(tmp_path, content), Columns(), "acme"))
