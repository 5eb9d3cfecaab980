"""Measure retrieval quality so that a rewrite cannot game it: by the ranks of gold or labelled passages, else by
scores against the need.
"""

import math
from collections.abc import Mapping, Sequence

from qinglan.reward.episode import RetrievalResult
from qinglan.reward.terms import seed_v1
from qinglan.rows.labels import Label, graded_ndcg, passage_gains

DEPTH = 10
"""Last rank at which a passage still earns a reward."""

SECOND_RANK_REWARD, LAST_RANK_REWARD = 0.5, 0.1
"""Rewards of ranks 2 and 10. Rank 1 earns 1; the ranks between 2 and 10 are on a straight line."""


def retrieval_quality(retrieval: RetrievalResult, gold: tuple[str, ...], labels: Sequence[Label] = ()) -> float:
    """Return a quality in [0, 1]. With gold or a relevant label it is half rank reward and half nDCG@10, else a mean
    of the scores against the need (`seed_v1.retrieval_quality`).

    A rewrite can raise scores against itself. So without scores against the need, the quality is 0 for every system,
    and the row's reward comes only from the judge and the penalties.
    """
    if gains := dict.fromkeys(gold, 1.0) or passage_gains(labels):
        return graded_quality([hit.id for hit in retrieval.hits], gains)
    if retrieval.scored_against != "need":
        return 0.0
    return seed_v1.retrieval_quality(retrieval.scores)


def graded_quality(ids: Sequence[str], gains: Mapping[str, float]) -> float:
    """Return the quality of a retrieval by the passages' gains. A passage without a gain earns nothing although it
    may be relevant, because a policy that is rewarded for unlabelled passages would learn to retrieve them."""
    best = max((gains.get(passage, 0.0) * rank_reward(rank) for rank, passage in enumerate(ids, 1)), default=0.0)
    return 0.5 * best + 0.5 * graded_ndcg(ids, gains, DEPTH)


def rank_reward(rank: int) -> float:
    """Return the reward of a relevant passage's rank: rank 1 earns twice as much as rank 2, rank 10 a little."""
    if rank == 1:
        return 1.0
    if rank > DEPTH:
        return 0.0
    return SECOND_RANK_REWARD - (SECOND_RANK_REWARD - LAST_RANK_REWARD) * (rank - 2) / (DEPTH - 2)


def needless_rewrite_penalty(quality: float, quality_plain: float, unchanged: bool, scale: float) -> float:
    """Return a penalty in [0, 2] for rewriting a question that retrieves at least as well without a rewrite.

    The penalty grows with the quality of the plain question, and with the loss of quality by the rewrite. It is 0 for
    an unchanged question.
    """
    if unchanged or quality > quality_plain:
        return 0.0
    # In [0, 2]: the quality of the plain question, and up to 1 more for the quality that the rewrite loses.
    return quality_plain + math.tanh(scale * (quality_plain - quality))
