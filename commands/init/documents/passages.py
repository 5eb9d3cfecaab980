"""Cut a document's headings and paragraphs into passages of a size that a search can return. Pure functions."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, NamedTuple

from qinglan.rag.contract import Passage
from qinglan.terminal import visible

LONGEST = 600
"""Highest number of characters in a passage: a few sentences, so that a prompt has room for several passages."""

LONGEST_CODE = 1500
"""Highest number of characters of fenced code in a passage, because a judge reads no more of a passage."""

LONGEST_TITLE = 80
SECTION = " › "
"""Separator between a page's title and the headings of its sections."""

SENTENCE_END = re.compile(r"(?<=[。！？；!?;\n])|(?<=\. )")
FENCE = re.compile(r"[\s>]{0,20}(?:(?:[-*+]|\d{1,9}[.)])\s{1,9})?(`{3,}|~{3,})(.*)")
"""The first or last line of fenced code (https://spec.commonmark.org/0.31.2/#fenced-code-blocks), also in a list."""


class Page(NamedTuple):
    """Title and metadata of a whole document, such as the front matter of Markdown."""

    title: str = ""
    metadata: Mapping[str, Any] = MappingProxyType({})
    draft: bool = False
    """True if the page is not published; it then gives no passage."""

    remark: str = ""
    """A remark on front matter that cannot be read; empty if there is none."""


class Block(NamedTuple):
    """A heading or a paragraph."""

    text: str
    level: int = 0
    """1 to 6 for a heading, 0 for a paragraph."""

    page: int = 0
    """Page number in a PDF; 0 for other documents."""


def document_passages(source: PurePath, blocks: Iterable[Page | Block]) -> Iterator[Passage]:
    """Cut one document into passages. A passage's title names the headings above it; its id is the file's name with a
    number."""
    blocks = list(blocks)
    own_heading = sum(isinstance(block, Block) and block.level == 1 for block in blocks) == 1
    about, path = Page(), dict[int, str]()
    number, content, page = 0, "", 0

    def finish() -> Iterator[Passage]:
        nonlocal number, content
        for piece in split_text(content):
            if not any(map(str.isalnum, piece)):
                continue
            number += 1
            yield Passage(
                id=f"{safe_id(str(source))}#{number}",
                title=_title(about.title, source, path, own_heading),
                content=piece,
                metadata={**about.metadata, "source": str(source)} | ({"page": page} if page else {}),
            )
        content = ""

    for block in blocks:
        if isinstance(block, Page):
            about = block
            continue
        text = block.text.strip()
        if block.level:
            yield from finish()
            path = {level: heading for level, heading in path.items() if level < block.level}
            path[block.level] = " ".join(text.split())
        elif text:
            if content and (len(content) + len(text) > LONGEST or block.page != page):
                yield from finish()
            content, page = f"{content}\n{text}".strip(), block.page
    yield from finish()


def safe_id(text: str) -> str:
    """Return an id that fits into a cell of several ids: visible characters without comma, semicolon or space."""
    return re.sub(r"[\s,，;；\\/]+", "_", visible(text)).strip("_") or "passage"


def _title(page: str, source: PurePath, path: Mapping[int, str], own_heading: bool) -> str:
    """Build a passage's title from the page's title and the headings above the text, outermost first. If they are
    too long together, each is cut to the same width.

    The page's title is the one in its metadata, else its first-level heading, else the file's name. `own_heading` is
    True if the page has exactly one first-level heading. It often repeats the title in the metadata in other words,
    so it is then left out above other headings.
    """
    headings = [path[level] for level in sorted(path) if level > 1 or len(path) == 1 or not (page and own_heading)]
    page = page or path.get(1) or source.stem
    parts = [page, *(headings[1:] if headings[:1] == [page] else headings)]
    room = LONGEST_TITLE - len(SECTION) * (len(parts) - 1)
    width = max(width for width in range(1, room + 1) if sum(min(len(part), width) for part in parts) <= room)
    return SECTION.join(part[:width] for part in parts)


def fence_numbers(lines: Sequence[str]) -> Iterator[int]:
    """Yield for each line the number of its fenced code block, which includes the fence lines; 0 for text."""
    number, fence = 0, ""
    for line in lines:
        before, fence = fence, next_fence(fence, line)
        number += bool(fence and not before)
        yield number if before or fence else 0


def next_fence(marks: str, line: str) -> str:
    """Return the fence marks that are open after this line; empty if there are none. `marks` are open before it."""
    match = FENCE.match(line)
    if marks:
        return "" if match and match[1].startswith(marks) and not match[2].strip() else marks
    is_word = match and match[1].startswith("`") and "`" in match[2]  # ```x``` in a text
    return match[1] if match and not is_word else ""


def split_text(text: str) -> Iterator[str]:
    """Split a text into pieces of at most LONGEST characters, if possible at ends of sentences. Only fenced code may
    be longer."""
    piece = ""
    for part in _parts(text):
        if piece and len(piece) + len(part) > LONGEST:
            yield piece.strip()
            piece = ""
        piece += part
    if piece.strip():
        yield piece.strip()


def _parts(text: str) -> Iterator[str]:
    lines = text.splitlines(keepends=True)
    for fence, group in groupby(zip(fence_numbers(lines), lines, strict=True), key=lambda pair: pair[0]):
        part = [line for _, line in group]
        if fence:
            yield from _code(part)
            continue
        for sentence in SENTENCE_END.split("".join(part)):
            yield from (sentence[at : at + LONGEST] for at in range(0, len(sentence), LONGEST))


def _code(lines: Sequence[str]) -> Iterator[str]:
    """Yield a block of fenced code; above LONGEST_CODE characters, as several blocks with their own fences."""
    if sum(map(len, lines)) <= LONGEST_CODE:
        yield "".join(lines)
        return
    first = FENCE.match(lines[0])
    marker = first[1] if first else "```"
    is_closed = len(lines) > 1 and lines[-1].strip(" \t\n>").startswith(marker)
    body = "".join(lines[1:-1] if is_closed else lines[1:])
    piece = ""
    for line in body.splitlines(keepends=True):
        for at in range(0, len(line), LONGEST_CODE):
            if piece and len(piece) + len(line[at : at + LONGEST_CODE]) > LONGEST_CODE:
                yield f"{lines[0]}{piece.rstrip()}\n{marker}\n"
                piece = ""
            piece += line[at : at + LONGEST_CODE]
    yield f"{lines[0]}{piece.rstrip()}\n{marker}\n"
