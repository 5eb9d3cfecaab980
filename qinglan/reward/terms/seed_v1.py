"""Reward exactly as in the original plan: three comparisons with the teacher, weighted and clipped.

Its retrieval quality uses scores against the rewritten query itself, so a rewrite can game it; see the README.
"""

import math
from collections.abc import Sequence

from qinglan.reward.config import Outcomes, RewardConfig


def retrieval_quality(scores: Sequence[float]) -> float:
    """Return 0.6 times the first score plus 0.4 times the mean of the first three scores; 0 without scores."""
    if not scores:
        return 0.0
    top3 = scores[:3]
    return 0.6 * scores[0] + 0.4 * sum(top3) / len(top3)


def weighted_terms(
    judge: float, judge_teacher: float, quality: float, quality_teacher: float, config: RewardConfig
) -> dict[str, float]:
    """Return the three comparisons of the student with the teacher, each multiplied by its weight."""
    weights = config.weights
    return {
        "judge": weights.judge * math.tanh(config.scale * (judge - judge_teacher)),
        "retrieval": weights.retrieval * math.tanh(config.scale * (quality - quality_teacher)),
        "win": weights.win * _outcome(quality, quality_teacher, config.outcomes),
    }


def _outcome(quality: float, quality_teacher: float, outcomes: Outcomes) -> float:
    if quality == quality_teacher:
        return outcomes.tie
    return outcomes.win if quality > quality_teacher else outcomes.lose


def clip(total: float) -> float:
    return max(-1.0, min(1.0, total))


def compute_reward(
    judge: float, judge_teacher: float, scores: Sequence[float], scores_teacher: Sequence[float], config: RewardConfig
) -> float:
    """Compute the original plan's reward from judge scores in [0, 1] and reranker scores in retrieval order."""
    qualities = retrieval_quality(scores), retrieval_quality(scores_teacher)
    return clip(sum(weighted_terms(judge, judge_teacher, *qualities, config).values()))
