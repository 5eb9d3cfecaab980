"""Write answers to prompts with a passage: a rewrite in hindsight, or a question that the passage answers.

The answers use only the prompt. A rewrite in hindsight is the passage's heading, if the heading names the subject of
the conversation. A question is a phrasing that the passage lists after a colon; its history is the example's history
with the passage's subject instead of the example's.
"""

import hashlib
import json
import re

from standins.teacher.prompt_parser import PromptTask
from standins.teacher.question_parser import EDGES, ENDINGS, OPENINGS, QuestionParser

LISTED = re.compile(r"[：:]([^。！？!?\n]+)")
SEPARATORS = re.compile(r"[；;]")
LONGEST_ASK = 20


def hindsight_rewrite(reader: QuestionParser, task: PromptTask, without: str) -> str:
    """Return the passage's heading if the conversation has the same subject; else `without`, the usual rewrite."""
    heading, reading = task.title.strip() or first_sentence(task.passage), reader.read(task.question, task.history)
    return heading if reading.subject and reading.subject in heading else without


def write_question(reader: QuestionParser, task: PromptTask) -> str:
    """Write a question that the passage answers, with the fields of PSEUDO_FORMAT.

    All fields are empty if the heading names no subject or no topic, or if an incomplete question is required but the
    passage lists no phrasing.
    """
    heading = task.title.strip() or first_sentence(task.passage)
    subject = phrase.phrase if (phrase := reader.phrases.best(heading)) else ""
    topic, asks = heading.replace(subject, "").strip(EDGES), listed_asks(task.passage)
    reading = reader.read(task.question, task.history)
    if not subject or not topic or not (asks or reading.complete):
        return _answer("", "", "", "")
    history = task.history.replace(reading.subject, subject) if reading.subject else task.history
    if reading.complete:
        return _answer(history, f"{subject}{topic}", f"{subject}{topic}", heading)
    text = "\x1f".join((task.passage, task.question, task.history))
    ask = asks[int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % len(asks)]
    opening, ending = OPENINGS.match(task.question), ENDINGS.search(task.question)
    question = f"{opening[0] if opening else ''}{ask}{ending[0] if ending else ''}"
    return _answer(history, question, f"{subject}{ask}", heading)


def listed_asks(passage: str) -> list[str]:
    """List the short phrasings in a passage: the texts between semicolons after a colon."""
    lists = [SEPARATORS.split(match) for match in LISTED.findall(passage)]
    return [piece.strip() for pieces in lists if len(pieces) > 1 for piece in pieces if len(piece) <= LONGEST_ASK]


def first_sentence(passage: str) -> str:
    return re.split(r"[。！？!?\n]", passage.strip(), maxsplit=1)[0]


def _answer(history: str, question: str, need: str, query: str) -> str:
    fields = {"历史摘要": history, "原始查询": question, "独立问题": need, "检索词": query}
    return json.dumps(fields, ensure_ascii=False)
