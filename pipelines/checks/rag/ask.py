"""Ask a RAG service each question twice, and some also with another rewrite or need; the answers are plain data."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from components.data.convert.config import ConvertConfig
from pipelines.checks.rag.guess_fields import guess_answer_fields
from qinglan.concurrency import gather_or_cancel
from qinglan.errors import DataError
from qinglan.llm.config import RagUpstream
from qinglan.rag.client import RagClient
from qinglan.rag.contract import RagRequest
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rows.questions import Columns, read_questions
from qinglan.rows.rows import Question
from qinglan.rows.splits import split_of

OTHER_TEXT = "怎么申请退换货"
"""Text that stands for another question if there is only one."""

EFFECT_ROWS = 5
"""Number of questions that are also asked with another rewrite and another need."""


ANY_QUESTION = "怎么使用"
"""The question to ask without a sheet."""


class TimedAnswer(NamedTuple):
    """An answer with the contract's field names and the service's own scores."""

    data: Mapping[str, Any]
    seconds: float

    @property
    def scores(self) -> list[float]:
        return [hit["reranker_score"] for hit in self.data["recall"]]

    @property
    def passages(self) -> list[tuple[str, str]]:
        return [(hit["id"], hit["content"]) for hit in self.data["recall"]]


class RowAnswers(NamedTuple):
    """Answers about one question."""

    row: Question
    first: TimedAnswer
    again: TimedAnswer
    other_rewrite: TimedAnswer | None = None
    """The answer to a question with the next question's text as its rewrite."""

    other_need: TimedAnswer | None = None
    """The answer to the same query, scored against the next question; None also if the service refuses `need`."""

    need_refused: str = ""


class Measurements(NamedTuple):
    """All answers, and the shape in which they were read."""

    service: RagUpstream
    guessed: bool
    """True if the fields of an answer were guessed, since the settings did not fit."""

    rows: list[RowAnswers]


def training_questions(path: Path, columns: Columns, tenant: str, convert: ConvertConfig) -> list[Question]:
    """Return the training questions of the sheet's first tenant, each text once, labelled questions first.

    Dev and test questions are left out, because a calibration may be fitted on the result.
    """
    read = read_questions(path, columns, tenant)
    questions = [row for row in read if isinstance(row, Question)]
    splits = [row.split or split_of((row.tenant_id, row.conversation_id), convert) for row in questions]
    usable = [row for row, split in zip(questions, splits, strict=True) if split == "train"]
    if not usable:
        raise DataError(f"{path}: no question for training. Give more rows, or mark some as train.")
    of_tenant = [row for row in usable if row.tenant_id == usable[0].tenant_id]
    distinct: dict[str, Question] = {}
    for row in sorted(of_tenant, key=lambda row: not row.gold):
        distinct.setdefault(row.question, row)
    return [*distinct.values()]


async def measure(service: RagUpstream, retrieval: RetrievalConfig, rows: Sequence[Question]) -> Measurements:
    """Ask the service all questions; DataError if the shape of its answers cannot be guessed."""
    plain = service.model_copy(update={"calibration": {}})
    async with open_client(plain) as client:
        body = await client.retrieve_raw(search_request(retrieval, rows[0], rows[0].question))
    fitted, guessed = fit_shape(plain, body, rows[0].tenant_id)
    async with open_client(fitted) as client:
        answers = await ask_rows(client, retrieval, rows)
    return Measurements(fitted.model_copy(update={"calibration": service.calibration}), guessed, answers)


def open_client(service: RagUpstream) -> RagClient:
    return RagClient(
        service.base_url,
        timeout=service.timeout_seconds,
        concurrency=service.concurrency,
        attempts=2,
        service=service,
    )


def fit_shape(service: RagUpstream, body: bytes, tenant: str) -> tuple[RagUpstream, bool]:
    """Return the settings that can read this answer, and True if their fields had to be guessed."""
    client = open_client(service)
    try:
        client.read(body, tenant)
        return service, False
    except DataError:
        try:
            fields = guess_answer_fields(orjson.loads(body))
        except orjson.JSONDecodeError:
            fields = None
        if fields is None:
            raise
        return service.model_copy(update={"answer": fields}), True


async def ask_rows(client: RagClient, retrieval: RetrievalConfig, rows: Sequence[Question]) -> list[RowAnswers]:
    """Ask every question twice, as many at once as a run would, then a few with another rewrite or need."""
    answers = await ask_twice(client, retrieval, rows)
    other_texts = [rows[at + 1].question if at + 1 < len(rows) else OTHER_TEXT for at in range(len(rows))]
    for at, row in enumerate(rows[:EFFECT_ROWS]):
        answers[at] = answers[at]._replace(other_rewrite=await ask(client, retrieval, row, other_texts[at]))
        try:
            other_need = await ask(client, retrieval, row, row.question, other_texts[at])
            answers[at] = answers[at]._replace(other_need=other_need)
        except DataError as refusal:
            answers[at] = answers[at]._replace(need_refused=str(refusal))
    return answers


async def ask_twice(client: RagClient, retrieval: RetrievalConfig, rows: Sequence[Question]) -> list[RowAnswers]:
    first = await gather_or_cancel(*(ask(client, retrieval, row, row.question) for row in rows))
    again = await gather_or_cancel(*(ask(client, retrieval, row, row.question) for row in rows))
    return [RowAnswers(*answers) for answers in zip(rows, first, again, strict=True)]


async def ask(
    client: RagClient, retrieval: RetrievalConfig, row: Question, query: str, need: str = ""
) -> TimedAnswer:
    begun = time.perf_counter()
    body = await client.retrieve_raw(search_request(retrieval, row, query, need))
    seconds = time.perf_counter() - begun
    return TimedAnswer(client.read(body, row.tenant_id), seconds)


def search_request(retrieval: RetrievalConfig, row: Question, query: str, need: str = "") -> RagRequest:
    """Build a request as a run makes it; an empty `need` is left out."""
    request = retrieval.request(row.question, query, need or query, row.tenant_id)
    return request if need else request.model_copy(update={"need": None})
