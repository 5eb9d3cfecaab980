"""Write the stand-in teacher's rewrites, standalone questions and judgements by extraction from a knowledge base.

backend = load_extractive_backend({"fivedoctors": Path("knowledge_base.jsonl")})
backend.answer("fivedoctors", teacher_messages(question), None)      # "虾青素软胶囊 每日服用频次"
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qinglan.text.text import search_terms, term_coverage
from standins.teacher.backend import Refusal
from standins.teacher.lexical_judge import judge_rewrite
from standins.teacher.passage_writer import hindsight_rewrite, write_question
from standins.teacher.prompt_parser import PromptTask, read_prompt
from standins.teacher.question_parser import LONGEST_HEADING, QuestionParser

DECLINED = "这里只改写查询、还原问题、评价改写；收到的不是这样的请求。"


class ExtractiveBackend:
    """Backend with a parser for each knowledge base. The model's name is the tenant's name."""

    def __init__(self, readers: Mapping[str, QuestionParser]) -> None:
        self.readers = readers

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self.readers)

    def answer(
        self, model: str, messages: list[dict[str, Any]], response_format: dict[str, Any] | None
    ) -> str | Refusal:
        return answer_task(self.readers[model], read_prompt(messages, response_format))


def answer_task(reader: QuestionParser, task: PromptTask | None) -> str | Refusal:
    """Answer a task; declines tasks of other kinds, and prompts without a task (None)."""
    if task is None:
        return Refusal(DECLINED)
    match task.kind:
        case "rewrite":
            return rewrite_question(reader, task)
        case "need":
            return standalone_question(reader, task)
        case "hindsight":
            return hindsight_rewrite(reader, task, rewrite_question(reader, task))
        case "pseudo":
            return write_question(reader, task)
        case "judge":
            return json.dumps(judge_rewrite(reader, task), ensure_ascii=False)
    return Refusal(DECLINED)


def load_extractive_backend(knowledge_bases: Mapping[str, Path]) -> ExtractiveBackend:
    """Load a backend for these knowledge bases. This takes about a second for 3,000 passages."""
    return ExtractiveBackend({tenant: QuestionParser.load(path) for tenant, path in knowledge_bases.items()})


def rewrite_question(reader: QuestionParser, task: PromptTask) -> str:
    """Rewrite a question as the heading of the passage that surely answers it.

    If there is no such passage, return the user's words, with the subject if it is missing.
    """
    reading = reader.read(task.question, task.history)
    number = reader.answer(reading)
    if number is None:
        return task.question.strip() if reading.complete else reading.query
    heading = reader.heading(number)
    if term_coverage(heading, set(search_terms(task.question))) == 1.0:
        return task.question.strip()  # the question has the house's words already
    return heading if len(heading) <= LONGEST_HEADING else reading.query


def standalone_question(reader: QuestionParser, task: PromptTask) -> str:
    """Rewrite a question so that it can be understood without the history, in the user's own words."""
    reading = reader.read(task.question, task.history)
    return reading.core if reading.complete else f"{reading.subject}{reading.core}"
