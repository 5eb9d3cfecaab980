"""A document's headings and paragraphs become passages of a size that a search can return. Pure functions."""

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import NamedTuple

from qinglan.rag.contract import Passage
from qinglan.terminal import visible

LONGEST = 600
"""Characters of a passage: a handful of sentences, of which a prompt takes several."""

LONGEST_TITLE = 80
SENTENCE_END = re.compile(r"(?<=[。！？；!?;\n])|(?<=\. )")


class Block(NamedTuple):
    """A heading or a paragraph."""

    text: str
    level: int = 0
    """1 to 6 of a heading, 0 of a paragraph."""

    page: int = 0
    """Page of a PDF."""


def document_passages(source: PurePath, blocks: Iterable[Block]) -> Iterator[Passage]:
    """Passages of one document: each under its headings, with an id of the file's name and a number."""
    path: dict[int, str] = {}
    number, content, page = 0, "", 0

    def finish() -> Iterator[Passage]:
        nonlocal number, content
        for piece in split_text(content):
            number += 1
            metadata = {"source": str(source)} | ({"page": page} if page else {})
            yield Passage(
                id=f"{safe_id(str(source))}#{number}",
                title=_title(source, path),
                content=piece,
                metadata=metadata,
            )
        content = ""

    for block in blocks:
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
    """An id that a cell of several ids can hold as it is: no comma, no semicolon, no space, all of it to be seen."""
    return re.sub(r"[\s,，;；\\/]+", "_", visible(text)).strip("_") or "passage"


def _title(source: PurePath, path: dict[int, str]) -> str:
    """The document's title and the nearest heading."""
    headings = [path[level] for level in sorted(path)] or [source.stem]
    return " ".join(dict.fromkeys((headings[0], headings[-1])))[:LONGEST_TITLE]


def split_text(text: str) -> Iterator[str]:
    """Pieces of at most LONGEST characters, cut at the ends of sentences where there are any."""
    piece = ""
    for sentence in SENTENCE_END.split(text):
        if piece and len(piece) + len(sentence) > LONGEST:
            yield piece.strip()
            piece = ""
        while len(sentence) > LONGEST:
            yield sentence[:LONGEST].strip()
            sentence = sentence[LONGEST:]
        piece += sentence
    if piece.strip():
        yield piece.strip()
