"""Markdown of documentation sites: what a page says of itself, its headings, and code that stays whole."""

from pathlib import Path, PurePath

import pytest

from commands.init.documents.documents import read_documents
from commands.init.documents.markdown import LONGEST_FIELD, MOST_FIELDS, read_markdown
from commands.init.documents.passages import LONGEST, LONGEST_CODE, LONGEST_TITLE, document_passages
from qinglan.rag.contract import Passage


def passages(text: str, name: str = "about.md") -> list[Passage]:
    return list(document_passages(PurePath(name), read_markdown(text)))


def test_front_matter_is_metadata_and_its_title_the_pages() -> None:
    fields = "title: 关于文档\ndescription: 怎么写\ntags: [a, b]\ndraft: false"
    text = f"---\n{fields}\n---\n先看这里。\n\n## 示例\n一个例子。\n"

    first, second = passages(text)

    assert (first.title, first.content) == ("关于文档", "先看这里。")
    assert (second.title, second.content) == ("关于文档 › 示例", "一个例子。")
    assert first.metadata == {"description": "怎么写", "tags": "a, b", "draft": "False", "source": "about.md"}


@pytest.mark.parametrize(
    ("text", "title", "content"),
    [
        ("---\n- a\n- b\n---\n正文", "about", "---\n- a\n- b\n---\n正文"),  # a list between two rules
        ("---\n先说明。\n---\n正文", "about", "---\n先说明。\n---\n正文"),
        ("---\n先说: a: b\n---\n正文", "about", "---\n先说: a: b\n---\n正文"),  # no YAML, and no field
        ("---\ntitle: a\n正文", "about", "---\ntitle: a\n正文"),  # without its end
        ("---\ntitle: {a: b}\n---\n正文", "about", "正文"),
        ("---\ntitle: 2025\n---\n正文", "2025", "正文"),
        ("\ufeff---\ntitle: a\n---\n正文", "a", "正文"),
        ("---\r\ntitle: a\r\n---\r\n正文", "a", "正文"),
        ("---\ntitle: a\n---\n# b\n正文", "a › b", "正文"),
        ("---\ntitle: b\n---\n# b\n正文", "b", "正文"),
        ("正文\n---\ntitle: a\n---\n", "about", "正文\n---\ntitle: a\n---"),
    ],
)
def test_what_is_no_front_matter_stays_text(tmp_path: Path, text: str, title: str, content: str) -> None:
    (tmp_path / "about.md").write_bytes(text.encode())

    [passage] = read_documents([tmp_path]).passages

    assert (passage.title, passage.content) == (title, content)


@pytest.mark.parametrize(
    "fields", ["title: a: b: c", "title: a\ntitle: b", "x: &x [*x]", "title: a\n\tbad", "title: [a", "title: 'a"]
)
def test_broken_front_matter_is_left_out_and_named(tmp_path: Path, fields: str) -> None:
    (tmp_path / "about.md").write_text(f"---\n{fields}\n---\n正文", encoding="utf-8")

    read = read_documents([tmp_path])

    assert [passage.content for passage in read.passages] == ["正文"]
    [remark] = read.files[0].remarks
    assert remark.startswith("its front matter cannot be read, and is left out: front matter:")


def test_front_matter_cannot_replace_the_source_or_fill_every_passage() -> None:
    fields = "".join(f"f{number}: {'x' * 900}\n" for number in range(90))
    text = f"---\nsource: evil\npage: 9\n{fields}---\n正文"

    [passage] = passages(text)

    assert passage.metadata["source"] == "about.md"
    assert len(passage.metadata) == MOST_FIELDS
    assert max(map(len, passage.metadata.values())) == LONGEST_FIELD


@pytest.mark.parametrize(
    ("heading", "title"),
    [
        ("## 查询 {#query}", "查询"), ("## 使用索引 {#using-indexes}", "使用索引"), ("## 查询{#query} ##", "查询"),
        ("## a {: #b }", "a"), ("## a {/* #b */}", "a"), ("## {#b}", "about"), ("## a {b}", "a {b}"),
        ("## C#", "C"), ("## a \\#", "a \\"), ("##a", "about"),
    ],
)  # fmt: skip
def test_an_anchor_is_no_part_of_a_heading(heading: str, title: str) -> None:
    [passage] = passages(f"{heading}\n正文")

    assert passage.title == (title if title == "about" else f"about › {title}")


def test_a_long_title_keeps_its_section() -> None:
    [passage] = passages(f"# {'长' * 200}\n## 示例\n正文")

    assert len(passage.title) == LONGEST_TITLE
    assert passage.title.endswith("长 › 示例")


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("# a\n## b\n### c\n正文\n## d\n正文", ["a › b › c", "a › d"]),
        ("---\ntitle: p\n---\n# a\n正文\n## b\n### c\n正文", ["p › a", "p › b › c"]),  # a says what p says
        ("---\ntitle: p\n---\n# a\n## b\n正文\n# c\n## b\n正文", ["p › a › b", "p › c › b"]),
        ("---\ntitle: p\n---\n# p\n## b\n正文", ["p › b"]),
        ("### c\n正文\n## b\n正文", ["about › c", "about › b"]),
        (f"# {'a' * 90}\n## {'b' * 90}\n### c\n正文", [f"{'a' * 36} › {'b' * 36} › c"]),
    ],
)
def test_a_title_is_the_path_of_headings(text: str, titles: list[str]) -> None:
    assert [passage.title for passage in passages(text)] == titles


@pytest.mark.parametrize("text", ["---", "| | |\n|--|--|", "***", "# a\n\n---\n\n...", ":::\n:::", "> !"])
def test_a_passage_without_words_is_none(text: str) -> None:
    assert passages(text) == []


CODE = "\n".join(f"line {number}: value" for number in range(60))


@pytest.mark.parametrize(
    "text",
    [
        f"说明。\n\n```yaml\n{CODE}\n```\n\n后文。",
        f"说明。\n```\n\n{CODE}\n\n```\n后文。",
        f"说明。\n\n~~~~\n```\n{CODE}\n```\n~~~~\n后文。",
        f"````md\n```js\n{CODE}\n```\n````\n后文。",
        f"- 步骤\n  ```sh\n  {CODE}\n  ```\n- 后文。",
        f"> ```\n> {CODE}\n> ```\n> 后文。",
        f"说明。```x``` 词。\n\n```\n# 不是标题\n{CODE}\n```",
        f"```\n{CODE}",  # without its end
    ],
)
def test_fenced_code_stays_whole(text: str) -> None:
    assert LONGEST < len(CODE) < LONGEST_CODE

    cut = [passage.content for passage in passages(text)]

    [whole] = [content for content in cut if "line 0" in content]
    assert "line 59" in whole
    assert "不是标题" not in passages(text)[-1].title


def test_very_long_code_is_cut_at_lines_and_fenced_in_each_passage() -> None:
    lines = [f"line {number}: {'值' * 40}" for number in range(200)]

    cut = [passage.content for passage in passages("```yaml\n" + "\n".join(lines) + "\n```")]

    assert len(cut) > 5
    assert all(content.startswith("```yaml\n") and content.endswith("\n```") for content in cut)
    assert all(len(content) < LONGEST_CODE + 20 for content in cut)
    assert [line for content in cut for line in content.splitlines()[1:-1]] == lines


def test_the_marks_of_a_box_and_imports_of_mdx_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.mdx").write_text(
        "import Tabs from '@theme/Tabs';\n\n# 部署\n\n"
        ":::note 先读\n要备份。\n:::\n\n:::tip[提示]\n很快。\n:::\n\n::::info\n完。\n::::\n",
        encoding="utf-8",
    )

    [passage] = read_documents([tmp_path]).passages

    assert passage.content == "先读\n要备份。\n提示\n很快。\n完。"


def test_a_pages_title_in_html_is_the_sections(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<title>睡袋</title><h2>清洗</h2><p>手洗。</p>", encoding="utf-8")

    assert [passage.title for passage in read_documents([tmp_path]).passages] == ["睡袋 › 清洗"]
