"""Relevance judge of the stand-in. It decides if a passage answers a need; a set share of its answers is wrong.

Like a language model, it knows that 一天吃几次 and 每日服用频次 mean the same. This knowledge is a vocabulary: a file
with users' phrasings of each company term, such as a sample tenant's content. The judge sees no sheet, no row and no
gold label. Without a vocabulary it compares the words of need and passage.

A hash of model, need and passage selects the wrong answers. So two models err at different passages, and the same
question always gets the same answer.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from qinglan.config import load_yaml
from qinglan.text.text import search_terms, term_coverage
from standins.teacher.prompt_parser import PromptTask
from standins.teacher.question_parser import QuestionParser

ANSWERED, PARTLY = 0.8, 0.5
"""Shares of the need's character pairs in a passage at which it answers the need, fully and partly. They apply to
needs whose term is not in the vocabulary."""

REASONS = {
    3: "段落讲的正是这个对象的这件事。",
    2: "对象相同，只回答了一部分。",
    1: "对象或话题相同，但没有回答。",
    0: "与需求无关。",
}

Vocabulary = Mapping[str, str]
"""Company term by users' phrasing; each term also maps to itself."""


class ErrorRates(NamedTuple):
    """Shares of wrong judgements, by kind of error."""

    misses: float
    """Share of relevant passages that are judged irrelevant."""

    false_hits: float
    """Share of the other passages that are judged relevant."""


ERROR_RATES = ErrorRates(misses=0.1, false_hits=0.02)


class RelevanceJudge:
    """Relevance judge for one model of a tenant."""

    def __init__(self, model: str, reader: QuestionParser, vocabulary: Vocabulary, rates: ErrorRates) -> None:
        self._model, self._reader, self._vocabulary, self._rates = model, reader, vocabulary, rates

    def answer(self, task: PromptTask) -> str:
        if task.kind == "choice":
            return json.dumps({"段落": self._choose(task)}, ensure_ascii=False)
        grade = self._grade(task.question, task.title or task.passage, task.passage)
        return json.dumps({"评分": grade, "理由": REASONS[grade]}, ensure_ascii=False)

    def _choose(self, task: PromptTask) -> list[int]:
        graded = [(self._grade(task.question, text, text), number) for number, text in enumerate(task.headings, 1)]
        chosen = sorted((grade, -number) for grade, number in graded if grade >= 2)
        return [-number for _, number in reversed(chosen)][: task.most]

    def _grade(self, need: str, heading: str, passage: str) -> int:
        right = self._right_grade(need, heading, passage)
        luck, kind = self._luck("error", need, passage), self._luck("kind", need, passage)
        if right == 3 and luck < self._rates.misses:
            return 1 if kind < 0.5 else 0
        if right < 2 and luck < self._rates.false_hits:
            return 3 if kind < 0.5 else 2
        return right

    def _right_grade(self, need: str, heading: str, passage: str) -> int:
        reading = self._reader.read(need, "")
        same_subject = bool(reading.subject) and reading.subject in heading
        rest = reading.core.replace(reading.subject, " ") if reading.subject else reading.core
        if term := self._term(rest):
            return 3 if same_subject and term in heading else int(same_subject or term in heading)
        share = term_coverage(rest, set(search_terms(passage)))
        if not same_subject:
            return int(share >= ANSWERED)
        return 3 if share >= ANSWERED else 2 if share >= PARTLY else 1

    def _term(self, text: str) -> str:
        """Return the company's term for the question in a text; "" if the vocabulary has no term for it."""
        phrase = max((phrase for phrase in self._vocabulary if phrase in text), key=len, default="")
        return self._vocabulary.get(phrase, "")

    def _luck(self, what: str, need: str, passage: str) -> float:
        """Return a pseudorandom number in [0, 1) that depends only on `what`, the model, the need and the passage."""
        text = "\x1f".join((self._model, what, need, passage))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def read_vocabulary(path: Path) -> Vocabulary:
    """Read the vocabulary of a YAML file, whose `aspects` are company terms with users' phrasings (`asks`)."""
    aspects = load_yaml(path).get("aspects", {})
    return {phrase: term for term, aspect in aspects.items() for phrase in (term, *aspect["asks"])}
