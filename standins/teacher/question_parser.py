"""Find the subject of a question, and the passage that surely answers it, with only a knowledge base.

The parser has no table of answers; all its knowledge is read from the knowledge base when it is loaded.
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
"""Lowest share of the question's character pairs that an answering passage must have."""

STANDALONE_RATIO = 0.85
"""Lowest weight of a question's subject at which the question counts as complete, as a share of the weight of the
history's subject."""

LONGEST_HEADING = 30
"""Longest heading in characters that is used as a rewrite; a longer first sentence is prose."""

EDGES = " 　？?，,。.！!；;：:"
OPENINGS = re.compile(
    r"^(?:(?:那么|那它|请问一下|请问|我想问一下|我想问下|想问下|顺便问下|对了|还有|嗯|哦|它"
    r"|那(?![边里天个年些种])|这个(?![年月周天]))[，,、 ]*)+"
)
ENDINGS = re.compile(r"(?:呢|啊|呀|谢谢|[，,。？?！! ])+$")


class ParsedQuestion(NamedTuple):
    text: str
    """Question without the punctuation around it."""

    core: str
    """Question without opening and closing phrases."""

    subject: str
    """Subject from the question or, if it names none, from the history; empty if neither names one."""

    complete: bool
    """True if the question names its subject, or if neither question nor history names one."""

    @property
    def query(self) -> str:
        return self.text if self.complete else f"{self.subject} {self.text}".strip()


class QuestionParser:
    """Parser of questions with one knowledge base. A question takes less than a millisecond."""

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
        """Return the number of the best passage for a query; None if there is no hit."""
        return next((hit.number for hit in self.index.search(query, 1)), None)

    def answer(self, reading: ParsedQuestion) -> int | None:
        """Return the number of the passage about the subject that has the question's words; None if there is none."""
        number = self.first(reading.query)
        if number is None or not reading.subject or reading.subject not in self.heading(number):
            return None
        return number if term_coverage(reading.text, self.index.terms(number)) >= SURE else None


def passage_heading(passage: Passage) -> str:
    return passage.title.strip() or re.split(r"[。！？!?\n]", passage.content.strip(), maxsplit=1)[0]
