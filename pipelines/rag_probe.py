"""One free question to a run's RAG service before anything is paid: does it answer, in which shape, what is lost?"""

import asyncio
from typing import NamedTuple

from pipelines.rewriter import RunConfig
from qinglan.errors import OutageError, QinglanError
from qinglan.llm.config import RagUpstream
from qinglan.questions import read_questions
from qinglan.rag.client import RagClient
from qinglan.rag.contract import RagRequest
from qinglan.rag.service_limits import lost_measurements
from qinglan.rows import Question

PROBE_SECONDS = 10.0
ANY_QUESTION = "怎么使用"
"""Asked where there is no sheet yet."""


class RagProbe(NamedTuple):
    """Result of the question."""

    problem: QinglanError | None = None
    limits: tuple[str, ...] = ()
    """Measurements that the service does not allow."""

    snapshot: bool | None = None
    """Its answers name the knowledge base, by themselves or by a digest of samples; None where that is not known."""


def probe_rag(config: RunConfig) -> RagProbe:
    """Ask the service of the profile one question of the sheet."""
    service = config.gateway.rag
    request = probe_request(config)

    async def ask() -> RagProbe:
        async with RagClient(service.base_url, timeout=PROBE_SECONDS, attempts=1, service=service) as client:
            data = (await client.retrieve(request)).data
        limits = lost_measurements(service, data, config.retrieval.score_threshold)
        return RagProbe(None, tuple(limits), bool(data.snapshot or service.snapshot_queries))

    try:
        return asyncio.run(ask())
    except OutageError as error:
        unnamed = ", where the profile names none" if service.base_url == RagUpstream().base_url else ""
        problem = OutageError(
            f"RAG service {service.base_url} (gateway.rag.base_url{unnamed}): no answer. {error} "
            "Start it, or give the profile the address of yours. Nothing was paid for."
        )
        problem.__cause__ = error
        return RagProbe(problem)
    except QinglanError as error:
        return RagProbe(error)


def probe_request(config: RunConfig) -> RagRequest:
    """A request as a run makes it, for the first question of the sheet."""
    row = first_question(config)
    question, need = (row.question, row.need or row.question) if row else (ANY_QUESTION, ANY_QUESTION)
    return config.retrieval.request(question, question, need, row.tenant_id if row else config.tenant_id)


def first_question(config: RunConfig) -> Question | None:
    """The sheet's first question; None without a readable sheet, which is another check's finding."""
    if config.questions is None or not config.questions.is_file():
        return None
    try:
        rows = read_questions(config.questions, config.generate.columns, config.tenant_id)
        return next((row for row in rows if isinstance(row, Question)), None)
    except QinglanError:
        return None
