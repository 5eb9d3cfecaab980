"""Retrieve passages: the query decides which passages are shown and their order; the need decides only the scores."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple

from qinglan.rag.contract import RecalledPassage
from serving.rag.engine import Candidate, Engine
from serving.rag.reranker_client import RerankerClient
from serving.rag.service_client import ServiceError

CANDIDATES = 20
"""Lowest number of candidates that are searched, before the score threshold and `top_k` apply."""

DIGITS = 6

Rerank = Callable[[str, Sequence[Candidate]], Awaitable[list[float]]]
"""Function that scores how well each candidate answers a text, in the order of the candidates."""


class ScoredRetrieval(NamedTuple):
    """Retrieved passages, and the scorer that scored all of them."""

    recall: tuple[RecalledPassage, ...]
    reranker: Literal["local", "service"]
    """Scorer: `local` is the engine, `service` a reranker over HTTP."""

    fallback_reason: str
    """Reason why the configured reranker service did not score the passages; "" otherwise."""

    seconds: float
    """Seconds for the scoring after the search, including the wait for a service that failed."""


async def retrieve(
    engine: Engine,
    query: str,
    top_k: int,
    score_threshold: float,
    need: str | None,
    service: RerankerClient | None = None,
) -> ScoredRetrieval:
    """Find the passages that production shows for the query, scored against the need or, if it is None, the query.

    If the reranker service fails for the query or the need, the engine scores both. Otherwise the service would
    choose passages that the engine scores, and the threshold and the scores would be on different scales.
    """
    candidates = await engine.search(query, max(top_k, CANDIDATES))
    started, reason = time.perf_counter(), ""
    if service:
        try:
            recall = await score_candidates(service.rerank, candidates, query, top_k, score_threshold, need)
            return ScoredRetrieval(recall, "service", "", time.perf_counter() - started)
        except ServiceError as failure:
            reason = str(failure)
    recall = await score_candidates(engine.rerank, candidates, query, top_k, score_threshold, need)
    return ScoredRetrieval(recall, "local", reason, time.perf_counter() - started)


async def score_candidates(
    rerank: Rerank,
    candidates: Sequence[Candidate],
    query: str,
    top_k: int,
    score_threshold: float,
    need: str | None,
) -> tuple[RecalledPassage, ...]:
    """Choose the passages to show, best first, with their scores. Equal scores keep the engine's order."""
    pairs = sorted(zip(candidates, await rerank(query, candidates), strict=True), key=lambda pair: -pair[1])
    shown = [(candidate, score) for candidate, score in pairs if score >= score_threshold][:top_k]
    scores = [score for _, score in shown]
    if need is not None:
        scores = await rerank(need, [candidate for candidate, _ in shown])
    recall = []
    for (candidate, query_score), score in zip(shown, scores, strict=True):
        passage = candidate.passage
        recall.append(
            RecalledPassage(
                id=passage.id,
                content=passage.content,
                reranker_score=round(score, DIGITS),
                query_score=round(query_score, DIGITS),
                metadata={"title": passage.title, **passage.metadata},
            )
        )
    return tuple(recall)
