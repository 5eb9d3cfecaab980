"""The subject of a question, and the passage that surely answers it, by a knowledge base only.

The parser has no table of answers: all that it uses is read from the knowledge base as it loads.
"""

import re
import tempfile
from pathlib import Path
from typing import NamedTuple, Self

from qinglan.rag.contract import Passage
from qinglan.rag.knowledge_base import read_knowledge_base
from qinglan.rag.lexical.index import Index, build_index
from qinglan.text.text import term_coverage
from standins.teacher.salience import PhraseIndex

SURE = 0.8
"""Least share of the question's character pairs in a passage that answers it."""

STANDALONE_RATIO = 0.85
"""Least weight of a question's own subject, as a share of that of the history's subject, to be complete."""

LONGEST_HEADING = 30
"""Most characters of a heading; a longer first sentence is prose."""

EDGES = " 　？?，,。.！!；;：:"
OPENINGS = re.compile(
    r"^(?:(?:那么|那它|请问一下|请问|我想问一下|我想问下|想问下|顺便问下|对了|还有|嗯|哦|它"
    r"|那(?![边里天个年些种])|这个(?![年月周天]))[，,、 ]*)+"
)
ENDINGS = re.compile(r"(?:呢|啊|呀|谢谢|[，,。？?！! ])+$")


class ParsedQuestion(NamedTuple):
    text: str
    """The question without the punctuation around it."""

    core: str
    """The question without opening and closing phrases."""

    subject: str
    """The subject, from the question or else the history; empty if neither names it."""

    complete: bool
    """True if the question names its subject, or neither question nor history does."""

    @property
    def query(self) -> str:
        return self.text if self.complete else f"{self.subject} {self.text}".strip()


class QuestionParser:
    """One knowledge base; to parse a question takes less than a millisecond."""

    def __init__(self, index: Index, headings: list[str]) -> None:
        self.index = index
        self._headings = headings
        self.phrases = PhraseIndex(headings)

    @classmethod
    def load(cls, knowledge_base: Path) -> Self:
        headings = [passage_heading(passage) for passage in read_knowledge_base(knowledge_base)]
        with tempfile.TemporaryDirectory(prefix="qinglan-teacher-") as folder:
            # An open index is memory-mapped, so the folder may be removed.
            index = Index.open(build_index(knowledge_base, Path(folder), "teacher"))
        return cls(index, headings)

    def read(self, question: str, history: str) -> ParsedQuestion:
        question_text = question.strip(EDGES)
        current, past = self.phrases.best(question_text), self.phrases.best(history)
        core = ENDINGS.sub("", OPENINGS.sub("", question_text)) or question_text
        if past is None or (current is not None and current.weight >= STANDALONE_RATIO * past.weight):
            return ParsedQuestion(question_text, core, current.phrase if current else "", True)
        return ParsedQuestion(question_text, core, past.phrase, False)

    def heading(self, number: int) -> str:
        return self._headings[number]

    def first(self, query: str) -> int | None:
        """The number of the first passage for this query."""
        return next((hit.number for hit in self.index.search(query, 1)), None)

    def answer(self, reading: ParsedQuestion) -> int | None:
        """The passage about the subject that has the question's words; None without such a passage."""
        number = self.first(reading.query)
        if number is None or not reading.subject or reading.subject not in self.heading(number):
            return None
        return number if term_coverage(reading.text, self.index.terms(number)) >= SURE else None


def passage_heading(passage: Passage) -> str:
    """The passage's subject: its title, else its first sentence."""
    return passage.title.strip() or re.split(r"[。！？!?\n]", passage.content.strip(), maxsplit=1)[0]
