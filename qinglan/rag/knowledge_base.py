"""Reads a knowledge base: its passages, their text for searching, and the weight of a term."""

import math
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from qinglan.errors import DataError
from qinglan.files.files import read_jsonl
from qinglan.rag.contract import Passage
from qinglan.terminal import visible
from qinglan.text.text import is_blank


def read_knowledge_base(path: Path) -> Iterator[Passage]:
    """Yield the passages of a knowledge base. A DataError names a broken line, a repeated id or an empty file."""
    first_line: dict[str, int] = {}
    for line, passage in read_jsonl(path, Passage):
        if is_blank(passage.content) or visible(passage.id) != passage.id:
            raise DataError(
                f"{path}:{line}: id '{visible(passage.id)}': its text, or letters of its id, are invisible. Take it "
                "out, or write it anew."
            )
        identity = unicodedata.normalize("NFC", passage.id)  # ids may differ in how an accent is coded
        if identity in first_line:
            raise DataError(
                f"{path}:{line}: id {passage.id!r} is used in line {first_line[identity]} already. "
                "Give every passage its own id."
            )
        first_line[identity] = line
        yield passage
    if not first_line:
        raise DataError(f"{path}: holds no passage. Write one JSON object a line: id, title, content, metadata.")


def searched_text(passage: Passage) -> str:
    return f"{passage.title}\n{passage.content}"


def inverse_frequency(df: int, passages: int) -> float:
    # BM25's idf as tantivy computes it; the 1 keeps it positive for terms of more than half of the passages.
    return math.log(1 + (passages - df + 0.5) / (df + 0.5))
