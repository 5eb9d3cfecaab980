"""Markup that readers of a documentation site never see is no text of its passages."""

import time
from pathlib import Path

import pytest

from commands.init.documents.documents import read_documents
from commands.init.documents.hidden_markup import without_hidden
from qinglan.errors import DataError

CODE = "```html\n<!-- a -->\n<b>c</b>\n{/* d */}\nimport x from 'y'\n```"


def marked(text: str) -> str:
    return "\n".join(line.rstrip() for line in without_hidden(text).split("\n") if line.strip())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<!-- internal: reviewer Bob -->\ntext", "text"),
        ("a\n<!-- b\n\n```\nc\n-->\nd", "a\nd"),
        ("<!--> a -->", " a -->"),
        ("<!-- a\n\nb", ""),  # without its end: hidden to the end, as in a browser
        ("a <!-- b\n\nc", "a <!-- b\nc"),  # in a line: it is text
        ("`<!-- a -->` b", "`<!-- a -->` b"),
        ("``<!-- ` -->`` b", "``<!-- ` -->`` b"),
        ("`a <!-- b --> c", "`a  c"),  # one backtick begins no code
        (CODE, CODE),
        ("~~~\n<script>a\n~~~\nb", "~~~\n<script>a\n~~~\nb"),
        ("- ```\n  <!-- a -->\n  ```\nb", "- ```\n  <!-- a -->\n  ```\nb"),
        ("{/*\na\n*/}\nb", "b"),
        ("{/* a\nb", "{/* a\nb"),
        ("## a {/* #b */}", "## a"),
        ("<STYLE module>\n.a{}\n</STYLE >\nb", "b"),
        ("<script setup>\nimport X from './x.vue'\n\nconst a = 1\n</script>\nb", "b"),
        ("<scripts>a</scripts>", "a"),
        ("<styled> b", "<styled> b"),
        ("import Tabs from '@theme/Tabs';\nimport X from \"y\"\n\na", "a"),
        ("import './a.css'\n\nb", "b"),
        ("import the file 'a.csv' first.", "import the file 'a.csv' first."),
        ("a\nimport b from 'c'", "a\nimport b from 'c'"),  # in a paragraph
        ("<Tabs groupId=\"os\">\n<TabItem value=\"npm\" label=\"npm\">\n\na\n\n</TabItem>\n</Tabs>", "npm\na"),
        ("<Tabs\n  values={[\n    {label: 'b', value: 'c'},\n  ]}>\n\na\n\n</Tabs>", "a"),
        ("<X on={() => {a > b}} />c", "c"),
        ("<my-box title='b'>a</my-box>", "b a"),
        ("Press <kbd>Ctrl</kbd>+<kbd>K</kbd>, H<sub>2</sub>O", "Press Ctrl+K, H2O"),
        ("<tr><td>a</td><td>b</td></tr>", "a b"),
        ("a<br>b<hr/>c<img src='d' alt='e'>f", "a b c e f"),
        ("<details><summary>More</summary>\n\na\n\n</details>", "More\na"),
        ("run `x <Name>` with <Name> or <FILE>", "run `x <Name>` with <Name> or <FILE>"),
        ("Map<String> and a<b and c > d", "Map<String> and a<b and c > d"),
        ("`<b>` and <b>c</b>", "`<b>` and c"),
        ("\\<b>a</b>", "\\<b>a"),
        ("<https://a.example/b> <me@a.example>", "<https://a.example/b> <me@a.example>"),
        ("<<< @/snippets/a.js{2}\nb", "b"),
        ("<<<<<<< HEAD", "<<<<<<< HEAD"),
        ("a\0b", "ab"),
    ],
)  # fmt: skip
def test_what_readers_never_see_is_left_out(text: str, shown: str) -> None:
    assert marked(text) == shown


@pytest.mark.parametrize(
    "piece",
    ["<!-- a", "{/* a", "`<a ", "<a {", "<a '", "x <script> ", "<b>\n", "`" * 9 + "a"],
)
def test_the_work_of_hiding_grows_with_the_text_alone(piece: str) -> None:
    started = time.process_time()

    without_hidden(piece * 20_000)

    assert time.process_time() - started < 20


def test_drafts_packages_and_hidden_documents_are_counted(tmp_path: Path) -> None:
    for name, text in {
        "a.md": "text", "b.md": "---\ndraft: true\n---\nsecret", "c.mdx": "---\ndraft: false\n---\nmore",
        "node_modules/x/README.md": "junk", "sub/node_modules/y.md": "junk", ".vitepress/config.md": "hidden",
        ".git/HEAD": "no document", ".d.md": "hidden", "modules/e.md": "last",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")

    read = read_documents([tmp_path])

    assert [passage.content for passage in read.passages] == ["text", "more", "last"]
    assert [note.rsplit(" ", 1)[1] for note in read.notes] == ["1.", "4."]


def test_a_folder_of_drafts_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("---\ndraft: true\n---\nsecret", encoding="utf-8")

    with pytest.raises(DataError, match="Left out as drafts"):
        read_documents([tmp_path])
