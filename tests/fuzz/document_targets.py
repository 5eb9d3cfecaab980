"""The readers of a company's documents, which `qinglan init` makes a knowledge base of."""

import tempfile
from functools import cache
from pathlib import Path

from commands.init.documents import documents
from commands.init.setup import read_data
from tests.commands.init.documents import write_pdf, write_word
from tests.fuzz.target import Parse, Target, archive_part, from_file, with_part

WORD_XML = "word/document.xml"
HTML = "<html><head><title>手册</title></head><body><h1>清洗</h1><p>冷水<b>手洗</b>。<table><tr><td>型号</td><td><p>A1</p></td></tr></table><!-- a --><script>1</script></body></html>"  # fmt: skip  # noqa: E501
MARKDOWN = (
    "---\ntitle: 问题\ntags: [a, b]\n---\n# 常见问题\n\n## 退货 {#back} ##\n七天内。\n\n```yaml\n# 不是标题\n```\n"
    ":::tip 提示\n- ~~~~\n  a\n  ~~~~\n:::\n"
)
ALPACA = '[{"instruction": "几次", "input": "", "output": "两次", "history": [["有吗", "有的"]], "system": "a"}]'
SHAREGPT = (
    '[{"conversations": [{"from": "human", "value": "几次"}, {"from": "gpt", "value": "两次"}], "tools": "[]"}]'
)
CSV = '编号,问题,答案\r\n1,怎么退货,"七天内\n可以退货"\r\n2,发票,=1+1\r\n'


@cache
def word() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.docx"
        write_word(path, ("Heading1", "背包手册"), ("Normal", "冷水手洗。"), table=[["型号", "容量"], ["A1", "30升"]])
        return path.read_bytes()


@cache
def pdf() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.pdf"
        write_pdf(path, "The tent weighs two kilograms and\npacks small.\nDry it.", "Page two.")
        return path.read_bytes()


def word_xml() -> bytes:
    return archive_part(word(), WORD_XML)


def read_word_xml(content: bytes) -> None:
    """The document whose text is this, in an otherwise whole archive."""
    read_file("a.docx")(with_part(word(), WORD_XML, content))


def read_file(name: str) -> Parse:
    documents.SECONDS = 5  # below the bound of a search, whose inputs are small
    return from_file(name, lambda path: documents.read_documents([path]))


def document_targets() -> dict[str, Target]:
    return {
        "word": Target(read_file("a.docx"), (word(),)),
        "word-xml": Target(read_word_xml, (word_xml(),)),
        "pdf": Target(read_file("a.pdf"), (pdf(),)),
        "html": Target(read_file("a.html"), (HTML.encode(),)),
        "markdown": Target(read_file("a.md"), (MARKDOWN.encode(),)),
        "records": Target(
            from_file("a.json", lambda path: read_data("acme", path, ())),
            tuple(text.encode() for text in (ALPACA, SHAREGPT)),
        ),
        "csv": Target(read_file("a.csv"), (CSV.encode(), f"导出 2025\n\n{CSV}".encode())),
    }
