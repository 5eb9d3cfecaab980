"""Measures of one ranking against graded judgements, as trec_eval and ir_measures define them: pure.

measure_ranking(["d3", "d1"], {"d1": 2, "d9": 1})      # {"ndcg10": ..., "recall10": ..., ...}

A grade of 1 or more is relevant and is its own gain; what nobody judged is irrelevant. A query without a relevant
passage scores 0, as it does there.
"""

from collections.abc import Mapping, Sequence

from qinglan.evaluation.metrics import Metric
from qinglan.rows.labels import graded_ndcg

DEPTH = 100
"""Passages of a ranking that are looked at."""

RANKING_METRICS = {
    "ndcg10": Metric("nDCG@10"),
    "recall10": Metric("recall@10"),
    "recall100": Metric("recall@100"),
    "mrr": Metric("MRR@100", "score"),
    "p1": Metric("P@1"),
}
"""One number a query; the mean is reported. The first is what systems are compared by."""


def measure_ranking(ids: Sequence[str], grades: Mapping[str, int]) -> dict[str, float]:
    """Each of RANKING_METRICS; `ids` are distinct, the best first."""
    gains = {passage: float(grade) for passage, grade in grades.items() if grade > 0}
    first = next((rank for rank, passage in enumerate(ids[:DEPTH], 1) if passage in gains), None)
    return {
        "ndcg10": graded_ndcg(ids, gains, 10),
        "recall10": _recall(ids[:10], gains),
        "recall100": _recall(ids[:DEPTH], gains),
        "mrr": 1 / first if first else 0.0,
        "p1": float(first == 1),
    }


def _recall(ids: Sequence[str], gains: Mapping[str, float]) -> float:
    return sum(passage in gains for passage in ids) / len(gains) if gains else 0.0
