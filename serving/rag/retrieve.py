"""The rule of the service: the query decides which passages, in which order; `need` only what they score."""

from qinglan.rag.contract import Recall
from serving.rag.engine import Candidate, Engine

CANDIDATES = 20
"""How many are looked at before the cut at the threshold, at least."""

DIGITS = 6


async def retrieve(
    engine: Engine, query: str, top_k: int, score_threshold: float, need: str | None
) -> tuple[Recall, ...]:
    """What production would show for the query, each passage with its score against the need, else the query."""
    candidates = await engine.search(query, max(top_k, CANDIDATES))
    scores = await engine.rerank(query, candidates)
    kept = [pair for pair in zip(candidates, scores, strict=True) if pair[1] >= score_threshold][:top_k]
    shown = [candidate for candidate, _ in kept]
    against = [score for _, score in kept] if need is None else await engine.rerank(need, shown)
    return tuple(_recall(*pair) for pair in zip(shown, against, strict=True))


def _recall(candidate: Candidate, score: float) -> Recall:
    passage = candidate.passage
    return Recall(
        id=passage.id, content=passage.content, reranker_score=round(score, DIGITS),
        metadata={"title": passage.title, **passage.metadata},
    )  # fmt: skip
