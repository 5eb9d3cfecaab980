"""Retrieve passages: the query decides which passages are shown and their order; the need decides only the scores."""

import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

from qinglan.rag.contract import RecalledPassage
from serving.rag.engine import Candidate, Engine, Scores
from serving.rag.reranked_engine import local_engine

CANDIDATES = 20
"""Lowest number of candidates that are searched, before the score threshold and `top_k` apply."""

DIGITS = 6


class ScoredRetrieval(NamedTuple):
    """Retrieved passages, with the scorer of all of them."""

    recall: tuple[RecalledPassage, ...]
    reranker: Literal["local", "service"]
    fallback_reason: str = ""
    seconds: float = 0.0
    """Seconds for the scoring after the search, including the wait for a service that failed."""


async def retrieve(
    engine: Engine, query: str, top_k: int, score_threshold: float, need: str | None
) -> ScoredRetrieval:
    """Find the passages that production shows for the query; score them against the need or, if None, the query."""
    candidates = await engine.search(query, max(top_k, CANDIDATES))
    started = time.perf_counter()
    retrieval = await _score_candidates(engine, candidates, query, top_k, score_threshold, need)
    return retrieval._replace(seconds=time.perf_counter() - started)


async def _score_candidates(
    engine: Engine, candidates: Sequence[Candidate], query: str, top_k: int, score_threshold: float, need: str | None
) -> ScoredRetrieval:
    by_query = await engine.rerank(query, candidates)
    shown, query_scores = rank_candidates(candidates, by_query, top_k, score_threshold)
    scores = query_scores
    if need is not None:
        by_need = await (local_engine(engine) if by_query.fallback_reason else engine).rerank(need, shown)
        if by_need.fallback_reason:
            # One scorer for both texts. Otherwise the service would order and cut passages that the local reranker
            # scores, and the threshold would be on another scale than the scores.
            again = await _score_candidates(local_engine(engine), candidates, query, top_k, score_threshold, need)
            return again._replace(fallback_reason=by_need.fallback_reason)
        scores = by_need.values
    recall = []
    for candidate, score, query_score in zip(shown, scores, query_scores, strict=True):
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
    return ScoredRetrieval(tuple(recall), by_query.by, by_query.fallback_reason)


def rank_candidates(
    candidates: Sequence[Candidate], scores: Scores, top_k: int, score_threshold: float
) -> tuple[list[Candidate], list[float]]:
    """Choose the passages to show, best first, with their scores. Equal scores keep the engine's order."""
    pairs = sorted(zip(candidates, scores.values, strict=True), key=lambda pair: -pair[1])
    accepted = [pair for pair in pairs if pair[1] >= score_threshold][:top_k]
    return [candidate for candidate, _ in accepted], [score for _, score in accepted]
