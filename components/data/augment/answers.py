"""Check the teacher's answers before they are used as search queries. All functions are pure.

The teacher saw the passage, but the student will not. A rewrite that copies a sentence or a number of the passage is
refused: it would find the passage, but would teach the student to make up passages.
"""

import orjson
from pydantic import ValidationError

from components.data.augment.cases import HindsightCase, PseudoCase
from qinglan.config import explain_validation_error
from qinglan.errors import RowError
from qinglan.prompts import PSEUDO_FIELDS
from qinglan.rag.contract import Passage
from qinglan.rewriter.guard import failed_guards
from qinglan.rows.rows import Question
from qinglan.text.near_duplicates import NearDuplicateIndex, question_key
from qinglan.text.text import is_copied, normalise, one_line


def check_hindsight(case: HindsightCase, query: str) -> None:
    """Raise a RowError if the rewrite fails a guard, copies the passage, or repeats the teacher's first rewrite."""
    _check_query(case.row, case.passage, query)
    if normalise(query) == normalise(case.prompt.teacher_rewrite):
        raise RowError("same_as_before", "the teacher wrote the same rewrite again")


def read_pseudo(case: PseudoCase, text: str) -> tuple[Question, str]:
    """Return the question and the query in the teacher's answer. Raises a RowError if one of its fields is
    missing."""
    answer = orjson.loads(text)
    if wrong := [name for name in PSEUDO_FIELDS if not isinstance(answer.get(name), str)]:
        raise RowError("malformed", f"The answer has no text {', '.join(wrong)}.", text)
    history, question, need, query = (one_line(answer[name]) for name in PSEUDO_FIELDS)
    if not question:
        raise RowError("nothing_to_ask", "the teacher found no question that the passage answers")
    try:
        row = Question(
            id=case.id, tenant_id=case.tenant_id, conversation_id=f"pseudo-{case.tenant_id}:{case.passage.id}",
            question=question, user_profile=case.example.user_profile, history_summary=history, need=need or question,
            gold=(case.passage.id,), split="train",
        )  # fmt: skip
    except ValidationError as error:
        raise RowError("malformed", explain_validation_error(error), text) from error
    return row, query


def check_pseudo(case: PseudoCase, question: Question, query: str, held_out: NearDuplicateIndex) -> None:
    """Raise a RowError if question or query copies the passage, or if dev or test has nearly the same question."""
    _check_query(question, case.passage, query)
    if is_copied(f"{question.question} {question.history_summary}", case.passage.title, [case.passage.content]):
        raise RowError("copied", "the question is a sentence of the passage", question.question)
    if held_out.alike(question_key(question.question, question.history_summary)):
        raise RowError("like_dev_or_test", "a question of dev or test is nearly the same", question.question)


def _check_query(question: Question, passage: Passage, query: str) -> None:
    if failed := failed_guards(question, query):
        raise RowError(failed[0], f"the serving guard refuses it: {', '.join(failed)}", query)
    if is_copied(query, f"{question.question} {passage.title}", [passage.content]):
        raise RowError("copied", "the query is a sentence of the passage", query)
