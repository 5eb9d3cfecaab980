"""Read Markdown as documentation sites write it: front matter, anchors, fenced code, admonitions. Pure functions.

read_markdown("---\\ntitle: 部署\\n---\\n## 步骤 {#steps}\\n...")    Page("部署"), Block("步骤", 2), Block("...")
"""

import re
from collections.abc import Iterator
from typing import Any

from commands.init.documents.hidden_markup import without_hidden
from commands.init.documents.passages import Block, Page, fence_numbers
from qinglan.documents import parse_yaml
from qinglan.errors import ConfigError

FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"(#{1,6})\s")
ANCHOR = re.compile(r"\s?\{:?\s?#[^{}]{0,200}\}$")
"""The id of a heading as Docusaurus, VitePress and kramdown write it."""

ADMONITION = re.compile(r"\s*:{3,}\s*(?:[\w-]+\s*)?(.*)$")
"""The first or last line of a box (:::tip Title); only the title is kept as text."""

FIELD = re.compile(r"\s*[A-Za-z_][\w-]*\s*:(?:\s|$)")
"""The first line of front matter, even if its YAML is broken. Text between two `---` lines that begins differently is
ordinary text."""

MOST_FIELDS, LONGEST_FIELD = 20, 200
"""Highest number of front matter fields that become a passage's metadata, and of characters in such a field."""


def read_markdown(text: str) -> Iterator[Page | Block]:
    """Yield the page's title and metadata, then its headings and paragraphs; fenced code stays as it is."""
    page, body = _front_matter("\n".join(text.splitlines()))
    if page:
        yield page
    lines = [*without_hidden(body).split("\n"), ""]
    paragraph = list[str]()
    for line, fence in zip(lines, fence_numbers(lines), strict=True):
        mark = None if fence else HEADING.match(line)
        heading = ANCHOR.sub("", line[mark.end() :].strip().rstrip("#").rstrip()).rstrip() if mark else ""
        if heading or (not line.strip() and not fence):
            yield Block("\n".join(paragraph))
            paragraph = []
        if mark and heading:
            yield Block(heading, level=len(mark[1]))
        elif fence:
            paragraph.append(line.rstrip())
        elif (shown := _shown(line)).strip():
            paragraph.append(shown)
    yield Block("\n".join(paragraph))


def _front_matter(text: str) -> tuple[Page | None, str]:
    """Parse the front matter. Return the page that it describes, with a remark if it is broken, and the text below;
    or None and the whole text if there is no front matter."""
    match = FRONT_MATTER.match(text)
    if not match:
        return None, text
    try:
        fields = parse_yaml(match[1], "front matter")
    except ConfigError as error:
        if not FIELD.match(match[1]):
            return None, text
        return Page(remark=f"its front matter cannot be read, and is left out: {error}"), text[match.end() :]
    if not isinstance(fields, dict):
        return None, text
    shown = [(str(name), _field(value)) for name, value in fields.items() if name != "title"]
    metadata = dict([(name, value) for name, value in shown if value][:MOST_FIELDS])
    page = Page(_field(fields.get("title")), metadata, draft=fields.get("draft") is True)
    return page, text[match.end() :]


def _field(value: Any) -> str:
    """Return a field's text. A list becomes one text; a value with an inner list or mapping gives no text."""
    values = value if isinstance(value, list) else [value]
    if value is None or any(isinstance(item, dict | list) for item in values):
        return ""
    return " ".join(", ".join(map(str, values)).split())[:LONGEST_FIELD]


def _shown(line: str) -> str:
    if match := ADMONITION.match(line):
        return match[1].strip().removeprefix("[").removesuffix("]")
    return line.rstrip()
