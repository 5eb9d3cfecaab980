"""Check a run's RAG service before anything is paid: whether it answers, in which shape, and which measurements it
does not allow.

If its answers do not name the knowledge base and the profile has no `snapshot_queries`, training questions that get
the same answer twice are chosen as snapshot queries.
"""

import asyncio
from pathlib import Path
from typing import NamedTuple

from pipelines.checks.rag.ask import ANY_QUESTION, ask_twice, training_questions
from pipelines.checks.rag.judge import SAMPLED_QUESTIONS, stable_questions
from pipelines.lines.rewriter import RunConfig
from qinglan.config import load_yaml
from qinglan.errors import DataError, OutageError, QinglanError
from qinglan.llm.config import RagUpstream
from qinglan.rag.client import RagClient
from qinglan.rag.service_limits import lost_measurements
from qinglan.rows.questions import read_questions
from qinglan.rows.rows import Question

PROBE_SECONDS = 10.0


class RagProbe(NamedTuple):
    """Result of asking the RAG service."""

    problem: QinglanError | None = None
    limits: tuple[str, ...] = ()
    """Measurements that the service does not allow."""

    snapshot: bool | None = None
    """True if answers name the knowledge base, by themselves or through a digest of sample answers; None if not
    known."""

    snapshot_queries: tuple[str, ...] = ()
    """Questions whose answers stand for the knowledge base; empty if the service names it."""


def probe_rag(config: RunConfig) -> RagProbe:
    """Ask the profile's RAG service one question of the sheet, and choose snapshot queries if it needs them."""
    service = config.gateway.rag
    row = first_question(config)
    question, need = (row.question, row.need or row.question) if row else (ANY_QUESTION, ANY_QUESTION)
    request = config.retrieval.request(question, question, need, row.tenant_id if row else config.tenant_id)

    async def ask() -> RagProbe:
        async with RagClient(service.base_url, timeout=PROBE_SECONDS, attempts=1, service=service) as client:
            data = (await client.retrieve(request)).data
            queries = service.snapshot_queries
            if not data.snapshot and not queries and any(hit.id or hit.content for hit in data.recall):
                queries = await choose_snapshot_queries(config, client)
        limits = lost_measurements(
            service.model_copy(update={"snapshot_queries": queries}), data, config.retrieval.score_threshold
        )
        return RagProbe(None, tuple(limits), bool(data.snapshot or queries), queries)

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


async def choose_snapshot_queries(config: RunConfig, client: RagClient) -> tuple[str, ...]:
    """Choose training questions, if all get the same answer twice; empty otherwise, or without a sheet."""
    if config.questions is None or not config.questions.is_file():
        return ()
    try:
        rows = training_questions(
            config.questions, config.generate.columns, config.tenant_id, config.convert
        )[:SAMPLED_QUESTIONS]  # fmt: skip
    except DataError:
        return ()  # another check reports this
    return stable_questions(await ask_twice(client, config.retrieval, rows))


def with_snapshot_queries(config: RunConfig, queries: tuple[str, ...]) -> RunConfig:
    rag = config.gateway.rag.model_copy(update={"snapshot_queries": queries})
    return config.model_copy(update={"gateway": config.gateway.model_copy(update={"rag": rag})})


def with_earlier_queries(config: RunConfig, earlier: Path) -> RunConfig:
    """Return the configuration with the snapshot queries that this run chose before, because with other queries the
    same knowledge base would look changed."""
    service = config.gateway.rag
    if service.snapshot_queries or not earlier.is_file():
        return config
    before = load_yaml(earlier).get("gateway", {}).get("rag", {})
    same = before.get("base_url") == service.base_url
    return with_snapshot_queries(config, tuple(before.get("snapshot_queries", ()))) if same else config


def first_question(config: RunConfig) -> Question | None:
    """Return the sheet's first question; None without a readable sheet, which another check reports."""
    if config.questions is None or not config.questions.is_file():
        return None
    try:
        rows = read_questions(config.questions, config.generate.columns, config.tenant_id)
        return next((row for row in rows if isinstance(row, Question)), None)
    except QinglanError:
        return None
