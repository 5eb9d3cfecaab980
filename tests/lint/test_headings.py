"""Documents as a reader sees them: no heading says again what the title says, and bold words are bold."""

import re
import subprocess
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
HEADING = re.compile(r"^(#+) (.*)$", re.MULTILINE)
CODE_BLOCK = re.compile("```.*?```", re.DOTALL)
WORD = re.compile(r"[a-z0-9]+|[\u4e00-\u9fff]")
LITTLE = frozenset({"a", "an", "and", "of", "on", "the", "what", "的", "和", "了", "吗"})


def documents() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def repetitions(text: str) -> list[str]:
    """The headings whose words are all in the title, or in the heading right above them."""
    headings = [(len(marks), _words(title), title) for marks, title in HEADING.findall(CODE_BLOCK.sub("", text))]
    title = next((words for level, words, _ in headings if level == 1), set())
    above = [set(), *(words for _, words, _ in headings)]
    return [
        heading
        for (level, words, heading), last in zip(headings, above, strict=False)
        if level > 1 and words and (words == last or (len(words) > 1 and words <= title))
    ]


def _words(title: str) -> set[str]:
    return set(WORD.findall(title.lower())) - LITTLE


@pytest.mark.parametrize("document", documents())
def test_no_heading_repeats_the_title(document: str) -> None:
    assert repetitions((ROOT / document).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "repeated"),
    [
        ("# Six runs, and why\n## The six runs\n", ["The six runs"]),
        ("# 比教师好吗？\n## 比教师好\n", ["比教师好"]),
        ("# Commands\n## Steps\n### Steps\n", ["Steps"]),
        ("# Six runs\n```\n# Six runs\n## Six runs\n```\n## Figures of each run\n", []),
    ],
)
def test_a_repeated_heading_is_noticed(text: str, repeated: list[str]) -> None:
    assert repetitions(text) == repeated


def bold_marks_left(text: str) -> list[str]:
    """Texts in which a reader sees the two stars: Markdown ends no bold words between a full stop and a letter."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    pieces = (piece for token in tokens for piece in token.children or ())
    return [piece.content for piece in pieces if piece.type == "text" and "**" in piece.content]


@pytest.mark.parametrize("document", documents())
def test_bold_words_are_bold(document: str) -> None:
    assert bold_marks_left((ROOT / document).read_text(encoding="utf-8")) == []


def test_a_full_stop_inside_of_bold_words_is_noticed() -> None:
    assert bold_marks_left("**照做。**从这里") and not bold_marks_left("**照做**。从这里")
