"""HTTP interface of the RAG service: the contract, its error answers, probes and metrics."""

import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse

from qinglan.files.files import sha256_text
from qinglan.rag.as_asked import searched_as_asked
from qinglan.rag.contract import KNOWLEDGE_BASES_PATH, RAG_PATH, KnowledgeBase, RagAnswer, RagData, RagRequest
from serving.rag.content_check import ContentChecker, content_routes
from serving.rag.engine import Engine, EngineUnavailable, SnapshotGone
from serving.rag.metrics import CACHE, Metrics
from serving.rag.opensearch.cluster_client import ClusterClient
from serving.rag.reranker_client import RerankerClient
from serving.rag.retrieve import ScoredRetrieval, retrieve
from serving.rag.rewriter_client import RewriterClient
from serving.rag.service_client import ServiceError
from serving.request_errors import BodyLimit, describe_validation_error

LARGEST_BODY = 512 * 1024
"""Largest body in bytes. No request that the contract allows is larger; the rest of a larger body is not read."""

RETRY_AFTER = "2"
"""Seconds after which a client may retry while the search engine is unavailable."""

ATTEMPTS = 3
"""Number of snapshots that one request tries, because a snapshot may be deleted during its search."""

GUARD_FALLBACK = "rewriter_guard"
"""Fallback reason if the rewriter answered but its guard replaced the rewrite."""

Engines = Mapping[tuple[str, str], Engine]
"""Engines by tenant and knowledge base."""


class SearchQuery(NamedTuple):
    """Query that is searched, with its source (`rewriter`) and the version of the rewriter's model."""

    query: str
    rewriter: str
    version: str = ""
    fallback_reason: str = ""
    cached: bool = False


def create_app(
    engines: Engines,
    rewriter: RewriterClient | None = None,
    checker: ContentChecker | None = None,
    reranker: RerankerClient | None = None,
    cluster: ClusterClient | None = None,
) -> FastAPI:
    """Create the application over open engines. When it ends, it closes the clients of the other services."""
    metrics = Metrics()
    if rewriter:
        metrics.watch_rewriter(lambda: rewriter.patience_seconds, lambda: rewriter.circuit_open)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for client in (rewriter, checker, reranker, cluster):
            if client:
                await client.aclose()

    app = FastAPI(title="Qinglan RAG", lifespan=lifespan)
    app.add_middleware(BodyLimit, largest=LARGEST_BODY)

    @app.post(RAG_PATH, response_model=RagAnswer)
    async def general_rag(request: RagRequest) -> Response:
        started = time.perf_counter()
        engine = find_engine(engines, request)
        answered = await search_as_asked(engine, request, rewriter, reranker) if rewriter else None
        searched = SearchQuery(request.query, "as asked") if answered else await choose_query(request, rewriter)
        knowledge_base, retrieval = answered or await retrieve_current(engine, searched.query, request, reranker)
        answer = make_answer(request, searched, knowledge_base, retrieval)
        if rewriter and searched.rewriter in ("model", "fallback"):
            metrics.rewritten(request.tenant_id, searched.cached, rewriter.cache.open)
        if searched.fallback_reason:
            metrics.fell_back(request.tenant_id, searched.fallback_reason)
        metrics.reranked(request.tenant_id, retrieval.reranker, retrieval.fallback_reason, retrieval.seconds)
        seconds = time.perf_counter() - started
        label = CACHE if searched.cached else searched.version or searched.rewriter
        metrics.answered(request.tenant_id, label, seconds, len(retrieval.recall))
        return Response(answer.model_dump_json(), media_type="application/json")

    @app.get(KNOWLEDGE_BASES_PATH)
    async def knowledge_bases() -> dict[str, Any]:
        listed = [with_reranker((await engine.current()).knowledge_base, reranker) for engine in engines.values()]
        return {"knowledge_bases": [knowledge_base.model_dump() for knowledge_base in listed]}

    app.include_router(content_routes(checker, {tenant for tenant, _ in engines}, metrics))
    _add_probes(app, engines, metrics, reranker)
    _add_refusals(app, metrics)
    return app


def make_answer(
    request: RagRequest, searched: SearchQuery, knowledge_base: KnowledgeBase, retrieval: ScoredRetrieval
) -> RagAnswer:
    """Build the answer from the passages, the searched query, and everything that the scores depend on."""
    data = RagData(
        rewritten_query=searched.query, recall=retrieval.recall, scored_against="need" if request.need else "query",
        rewriter=searched.rewriter, rewriter_version=searched.version, fallback_reason=searched.fallback_reason,
        snapshot=knowledge_base.snapshot, reranker=retrieval.reranker, reranker_digest=knowledge_base.reranker,
        reranker_fallback_reason=retrieval.fallback_reason,
    )  # fmt: skip
    return RagAnswer(data=data)


def find_engine(engines: Engines, request: RagRequest) -> Engine:
    """Find the engine of the requested knowledge base. The error reveals nothing about other tenants."""
    if engine := engines.get((request.tenant_id, request.kb_name)):
        return engine
    known = any(tenant == request.tenant_id for tenant, _ in engines)
    field, value = ("kb_name", request.kb_name) if known else ("tenant_id", request.tenant_id)
    raise HTTPException(404, f"{field}: nothing is served under {value!r}")


async def search_as_asked(
    engine: Engine, request: RagRequest, rewriter: RewriterClient, reranker: RerankerClient | None
) -> tuple[KnowledgeBase, ScoredRetrieval] | None:
    """Search the original question, and return the retrieval if its first passage scores high enough.

    Returns None if the score is too low, if the request has a rewrite, or if the rewriter rewrites every question.
    """
    if request.rewritten_query is not None or not rewriter.as_asked:
        return None
    knowledge_base, retrieval = await retrieve_current(engine, request.query, request, reranker)
    # If a reranker failed, the local score replaces its score, but is on another scale.
    certain = retrieval.recall and not retrieval.fallback_reason
    score = retrieval.recall[0].query_score if certain else None
    return (knowledge_base, retrieval) if searched_as_asked(score, rewriter.as_asked) else None


async def choose_query(request: RagRequest, rewriter: RewriterClient | None) -> SearchQuery:
    """Choose the query to search: the caller's rewrite, the deployed rewriter's, or the original question.

    The original question is the fallback, and the result states its reason.
    """
    if request.rewritten_query is not None:
        return SearchQuery(request.rewritten_query, "request")
    if rewriter is None:
        return SearchQuery(request.query, "fallback", fallback_reason="no rewriter configured")
    try:
        rewritten = await rewriter.rewrite(request)
    except ServiceError as failure:
        return SearchQuery(request.query, "fallback", fallback_reason=str(failure))
    if rewritten.guarded:  # with the version of the model that wrote the text
        return SearchQuery(request.query, "fallback", rewritten.version, GUARD_FALLBACK)
    return SearchQuery(rewritten.query, "model", rewritten.version, cached=rewritten.cached)


def cut_of(request: RagRequest, calibrated: bool) -> float:
    """Return the request's score threshold. The default is the contract's or, for uncalibrated scores, 0."""
    return request.score_threshold if calibrated or "score_threshold" in request.model_fields_set else 0.0


async def retrieve_current(
    engine: Engine, query: str, request: RagRequest, reranker: RerankerClient | None
) -> tuple[KnowledgeBase, ScoredRetrieval]:
    """Retrieve from the current snapshot. Returns its knowledge base and the retrieval.

    If the snapshot is deleted during the search, the next snapshot is searched.
    """
    for attempt in range(ATTEMPTS):
        now = await engine.current(gone=attempt > 0)
        with contextlib.suppress(SnapshotGone):
            cut = cut_of(request, now.calibrated and reranker is None)
            retrieval = await retrieve(now, query, request.top_k, cut, request.need, reranker)
            return with_reranker(now.knowledge_base, reranker), retrieval
    raise EngineUnavailable("gone")


def with_reranker(knowledge_base: KnowledgeBase, reranker: RerankerClient | None) -> KnowledgeBase:
    """Return the knowledge base with a digest of all rerankers that may score its passages."""
    if reranker is None:
        return knowledge_base
    digest = sha256_text(knowledge_base.reranker, reranker.config.scorer)
    return knowledge_base.model_copy(update={"reranker": digest})


def _add_probes(app: FastAPI, engines: Engines, metrics: Metrics, reranker: RerankerClient | None) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, Any]:
        uncalibrated = sorted(
            {tenant for (tenant, _), engine in engines.items() if reranker or not engine.calibrated}
        )
        return {"status": "ok", "uncalibrated_tenants": uncalibrated}

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        for engine in engines.values():
            await engine.current()
        return JSONResponse({"open": len(engines)}, 200 if engines else 503)

    @app.get("/metrics")
    async def prometheus() -> PlainTextResponse:
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")


def _add_refusals(app: FastAPI, metrics: Metrics) -> None:
    """Answer every rejected request in the contract's format, with the name of the wrong field."""

    def refusal(status: int, message: str) -> JSONResponse:
        metrics.refused(status)
        return JSONResponse({"code": status, "msg": message, "data": None}, status)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return refusal(422, describe_validation_error(error))

    @app.exception_handler(EngineUnavailable)
    async def away(_: Request, error: EngineUnavailable) -> JSONResponse:
        metrics.engine_away(error.reason)
        answer = refusal(503, str(error))
        answer.headers["retry-after"] = RETRY_AFTER
        return answer

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> JSONResponse:
        return refusal(error.status_code, str(error.detail))
