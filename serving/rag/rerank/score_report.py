"""Measure scores on held-out conversations: how well they separate passages, and how well they are calibrated."""

from collections.abc import Sequence
from typing import NamedTuple

from qinglan.rag.lexical.index import Index
from serving.rag.rerank.lexical_reranker import CalibrationBin, FitReport

BINS = 10


class ScoredPassage(NamedTuple):
    """Score of a passage, with the label if it answers."""

    score: float
    answers: bool


def build_report(
    index: Index, labels: str, fitted: int, held_out: int, lists: Sequence[Sequence[ScoredPassage]]
) -> FitReport:
    """Build the report on held-out lists of passages. `fitted` and `held_out` are numbers of conversations."""
    judged = [passage for passages in lists for passage in passages]
    # Production shows the passage with the best score first; of equal scores, the earliest.
    firsts = [max(passages, key=lambda passage: passage.score) for passages in lists if passages]
    return FitReport(
        tenant_id=index.manifest.tenant_id,
        snapshot=index.snapshot,
        labels=labels,
        fitted_conversations=fitted,
        held_out_conversations=held_out,
        held_out_pairs=len(judged),
        auc=auc(judged),
        calibration_error=calibration_error(judged),
        top1_calibration_error=calibration_error(firsts),
        reliability=reliability(judged),
        top1_answers=round(sum(passage.answers for passage in firsts) / len(firsts), 4) if firsts else None,
    )


def auc(judged: Sequence[ScoredPassage]) -> float | None:
    from sklearn.metrics import roc_auc_score

    answers = [passage.answers for passage in judged]
    if len(set(answers)) < 2:
        return None
    return round(float(roc_auc_score(answers, [passage.score for passage in judged])), 4)


def reliability(judged: Sequence[ScoredPassage]) -> tuple[CalibrationBin, ...]:
    """Bins of the reliability curve: each tenth of the score range that has pairs, from the lowest."""
    return tuple(
        CalibrationBin(
            score=round(sum(passage.score for passage in members) / len(members), 4),
            frequency=round(sum(passage.answers for passage in members) / len(members), 4),
            pairs=len(members),
        )
        for members in _score_bins(judged)
    )


def calibration_error(judged: Sequence[ScoredPassage]) -> float | None:
    """Expected calibration error: mean distance between score and frequency over the bins; None without passages."""
    if not judged:
        return None
    # ECE = sum over bins of (n_bin / n) * |mean score - frequency| = (1 / n) * sum |sum(score - answer)|
    gaps = (abs(sum(passage.score - passage.answers for passage in members)) for members in _score_bins(judged))
    return round(sum(gaps) / len(judged), 4)


def _score_bins(judged: Sequence[ScoredPassage]) -> list[list[ScoredPassage]]:
    held: dict[int, list[ScoredPassage]] = {}
    for passage in judged:
        held.setdefault(min(int(passage.score * BINS), BINS - 1), []).append(passage)
    return [members for _, members in sorted(held.items())]
