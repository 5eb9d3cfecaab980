"""Documents become passages with titles, ids and their source; what cannot be read is reported with the reason."""

import json
import zipfile
from pathlib import Path, PurePath

import pytest
from openpyxl import Workbook

from commands.init.documents import documents
from commands.init.documents.documents import Documents, join_lines, read_documents
from commands.init.documents.passages import LONGEST, Block, document_passages
from qinglan.rag.contract import Passage
from tests.commands.init.documents import write_pdf, write_word


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def read(folder: Path) -> Documents:
    return read_documents([folder])


def texts(documents: Documents) -> list[tuple[str, str]]:
    return [(passage.title, passage.content) for passage in documents.passages]


def test_markdown_is_cut_at_its_headings(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "faq.md").write_text(
        "# 常见问题\n\n## 退货\n七天内可以退货。\n\n```\n# 不是标题\n```\n## 发票 ##\n可以开电子发票。\n",
        encoding="utf-8",
    )
    documents = read(folder)

    assert texts(documents) == [
        ("常见问题 › 退货", "七天内可以退货。\n```\n# 不是标题\n```"),
        ("常见问题 › 发票", "可以开电子发票。"),
    ]
    assert [passage.id for passage in documents.passages] == ["sub_faq.md#1", "sub_faq.md#2"]
    assert documents.passages[0].metadata == {"source": "sub/faq.md"}


def test_word_keeps_headings_and_the_rows_of_tables(folder: Path) -> None:
    write_word(
        folder / "背包, 手册.docx", ("Heading1", "背包手册"), ("Heading2", "清洗"), ("Normal", "冷水手洗。"),
        table=[["型号", "容量"], ["A1", "30升"]],
    )  # fmt: skip
    documents = read(folder)

    assert texts(documents) == [("背包手册 › 清洗", "冷水手洗。\n型号 | 容量\nA1 | 30升")]
    assert documents.passages[0].id == "背包_手册.docx#1"


@pytest.mark.slow
def test_each_page_of_a_pdf_is_named(folder: Path) -> None:
    write_pdf(folder / "tent.pdf", "The tent weighs two kilograms and\npacks small.\nDry it.", "Page two.")
    documents = read(folder)

    assert [passage.content for passage in documents.passages] == [
        "The tent weighs two kilograms and packs small.\nDry it.",
        "Page two.",
    ]
    assert [passage.metadata["page"] for passage in documents.passages] == [1, 2]


def test_of_html_only_what_a_reader_sees_is_taken(folder: Path) -> None:
    (folder / "bag.html").write_text(
        "<html><head><title>睡袋</title><script>alert(1)</script></head><body><nav>首页</nav><h1>睡袋</h1>"
        "<p>舒适温度 <b>5</b> 度。</p><!-- 注释 --><table><tr><td><p>S1</p></td><td>1.2kg</td></tr></table>"
        "<style>p{}</style></body></html>",
        encoding="gb18030",
    )

    assert texts(read(folder)) == [("睡袋", "舒适温度 5 度。\nS1 | 1.2kg")]


def test_a_sheet_has_a_passage_in_each_row_with_its_other_cells(folder: Path) -> None:
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    for row in (["标准问题", "答案", "类目"], ["怎么洗", "冷水手洗。", "背包"], ["=1+1", "=HYPERLINK(1)", "x"]):
        sheet.append(row)
    book.save(folder / "faq.xlsx")

    assert read(folder).passages == [
        Passage(
            id="faq.xlsx#1", title="怎么洗", content="冷水手洗。", metadata={"source": "faq.xlsx", "类目": "背包"}
        )
    ]


def test_passages_keep_their_ids(folder: Path) -> None:
    line = {"id": "k,1", "title": "t", "content": "c", "metadata": {"url": "u"}}
    (folder / "kb.jsonl").write_text(json.dumps(line), encoding="utf-8")

    assert read(folder).passages == [Passage(**{**line, "metadata": {"source": "kb.jsonl", "url": "u"}})]


def test_what_cannot_be_read_is_reported_and_the_rest_is_taken(folder: Path) -> None:
    (folder / "a.txt").write_text("可以退货。", encoding="utf-8")
    (folder / "pic.png").write_bytes(b"\x89PNG")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4\nnothing")
    (folder / "broken.docx").write_bytes(b"PK\x03\x04")
    (folder / "orders.csv").write_text("订单,金额\n1,2\n", encoding="utf-8")
    (folder / "link.txt").symlink_to(folder / "a.txt")
    (folder / "~$a.docx").write_bytes(b"lock")
    write_pdf(folder / "scan.pdf", "")
    documents = read(folder)

    notes = {report.path.name: report.note for report in documents.files}
    assert texts(documents) == [("a", "可以退货。")]
    assert notes.pop("a.txt") == ""
    assert {name: note[:30] for name, note in notes.items()} == {
        "pic.png": "is no format that is read here",
        "broken.pdf": notes["broken.pdf"][:30],
        "broken.docx": notes["broken.docx"][:30],
        "orders.csv": "no column is called content, 内",
        "scan.pdf": "holds no text (a scan needs OC",
    }
    assert "not a readable" in notes["broken.pdf"] and "not a readable" in notes["broken.docx"]


@pytest.mark.slow
def test_a_word_file_that_unpacks_to_gigabytes_is_not_unpacked(folder: Path) -> None:
    (folder / "a.txt").write_text("可以退货。", encoding="utf-8")
    bomb = zipfile.ZipFile(folder / "bomb.docx", "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with bomb as archive, archive.open("x", "w") as file:
        for _ in range(300):
            file.write(bytes(1 << 20))

    assert "unpacks to 300 MB" in next(report.note for report in read(folder).files if report.note)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("cells.html", "<td>" * 8_000 + "冷水手洗。", "冷水手洗。"),
        ("tables.html", "<table><tr><td>" * 4_000 + "冷水手洗。", "冷水手洗。"),
        ("navigation.html", "<p>冷水手洗。</p>" + "<nav>" * 12_000, "冷水手洗。"),
        ("marks.md", f"# 清洗{'#' * 50_000} 说明\n冷水手洗。", "冷水手洗。"),
        ("spaces.md", f"# 清洗{' ' * 50_000}说明\n冷水手洗。", "冷水手洗。"),
    ],
)
def test_the_work_of_a_document_grows_with_its_length_alone(
    name: str, content: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by `make fuzz`: 12 kB of cells within cells took 18 s."""
    monkeypatch.setattr(documents, "SECONDS", 2)
    (folder / name).write_text(content, encoding="utf-8")

    assert [passage.content for passage in read(folder).passages] == [text]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["<!--", "<a "])
def test_a_page_whose_parser_would_work_without_end_is_reported(
    ending: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's parser of HTML looks for the end of each comment and tag anew."""
    monkeypatch.setattr(documents, "SECONDS", 0.1)
    (folder / "a.txt").write_text("可以退货。", encoding="utf-8")
    (folder / "b.html").write_text(ending * 60_000, encoding="utf-8")

    [note] = [report.note for report in read(folder).files if report.note]
    assert "could not be read in 0 s of work" in note


def test_a_page_that_the_parser_rejects_is_reported(folder: Path) -> None:
    """Found by `make fuzz`."""
    (folder / "a.txt").write_text("可以退货。", encoding="utf-8")
    (folder / "b.html").write_text("<![/", encoding="utf-8")

    [note] = [report.note for report in read(folder).files if report.note]
    assert note == "not a readable .html file (AssertionError: expected name token at '<![/')"


def test_a_long_text_is_cut_at_sentences_and_nothing_is_lost() -> None:
    text = "这是一句话，说的是同一件事情。" * 200 + "长" * 1500
    passages = list(document_passages(PurePath("a.txt"), [Block(text)]))

    assert "".join(passage.content for passage in passages) == text
    assert all(len(passage.content) <= LONGEST for passage in passages)
    assert all(passage.content.endswith("。") for passage in passages[:4])


def test_lines_broken_by_a_pages_width_are_joined() -> None:
    english = "Dry it well before you pack\nit away for the winter.\nOr not"

    assert list(join_lines("帐篷搭建时先铺地布再穿好两根\n杆子。")) == ["帐篷搭建时先铺地布再穿好两根杆子。"]
    assert list(join_lines(english)) == ["Dry it well before you pack it away for the winter.", "Or not"]
