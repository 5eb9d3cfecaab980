"""Quality that a rewrite cannot raise by itself: gold ranks, else scores against the row's fixed need."""

import math
from collections.abc import Sequence

from qinglan.errors import ConfigError
from qinglan.reward import seed_v1
from qinglan.reward.episode import RetrievalResult

DEPTH = 10
"""Ranks beyond it earn nothing."""

SECOND_RANK_REWARD, LAST_RANK_REWARD = 0.5, 0.1
"""The rank reward of ranks 2 and 10; the first earns 1, and those between stand on a line."""


def retrieval_quality(found: RetrievalResult, gold: tuple[str, ...]) -> float:
    """In [0, 1]: half rank reward and half nDCG@10 where gold is known, else the plan's mean of need scores."""
    if gold:
        ranks = found.ranks(gold)
        return 0.5 * rank_reward(ranks) + 0.5 * ndcg(ranks, len(gold))
    if found.hits and found.scored_against != "need":
        raise ConfigError(
            "The RAG service scores passages against the rewrite, so a row without gold passages has no reward "
            "that cannot be gamed. Use a service that takes `need`, label the rows, or set reward.mode: seed_v1."
        )
    return seed_v1.retrieval_quality(found.scores)


def rank_reward(ranks: Sequence[int]) -> float:
    """Of the first gold passage: coming first is worth twice coming second, later ranks still say the way."""
    first = min(ranks, default=DEPTH + 1)
    if first == 1:
        return 1.0
    return (
        SECOND_RANK_REWARD - (SECOND_RANK_REWARD - LAST_RANK_REWARD) * (first - 2) / (DEPTH - 2)
        if first <= DEPTH
        else 0.0
    )


def ndcg(ranks: Sequence[int], relevant: int) -> float:
    """nDCG@10 with every gold passage worth the same."""
    gained = sum(_discount(rank) for rank in ranks if rank <= DEPTH)
    return gained / sum(_discount(rank) for rank in range(1, min(relevant, DEPTH) + 1))


def needless_rewrite_penalty(quality: float, quality_plain: float, kept: bool, scale: float) -> float:
    """In [0, 2]: what rewriting a question costs that finds as well by itself; nothing when it was left alone.

    The better the plain question finds, the less there was to rewrite; finding worse than it costs as much again.
    """
    if kept or quality > quality_plain:
        return 0.0
    return quality_plain + math.tanh(scale * (quality_plain - quality))


def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)
