"""Measures of one rewrite and its retrieval: pure functions of one row that call no model."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from qinglan.evaluation.gates.rewriter_gate import By
from qinglan.evaluation.metrics import Metric
from qinglan.rows.labels import Label, graded_ndcg, passage_gains
from qinglan.rows.rows import Question
from qinglan.text.quantities import numbers_without_source
from qinglan.text.text import is_copied, normalise

TOP_K = 10
"""Number of first passages that are measured, as in nDCG@10 and recall@10."""

NAN = math.nan


METRICS = {
    "top1": Metric("gold passage first"),
    "ndcg": Metric("nDCG@10"),
    "recall": Metric("recall@10"),
    "judged_top1": Metric("first passage's score against the need", "score", "judged"),
    "quality": Metric("quality, by the examiner", "score", "judged", most=5.0),
    "zero_hit": Metric("nothing found"),
    "copied": Metric("copies history or passage"),
    "same": Metric("same as the question"),
    "empty": Metric("empty"),
    "length": Metric("length", "characters"),
    "length_ratio": Metric("length over the question's", "score"),
    "invented": Metric("numbers that nobody mentioned"),
}
"""Metrics with one number per row; the report shows their means."""

BY_LABELS = "labels by judges, not gold"
LABEL_METRICS = {
    "labelled_top1": Metric("labelled passage first", "share", BY_LABELS),
    "labelled_ndcg": Metric("nDCG@10 by labels", "share", BY_LABELS),
    "condensed_top1": Metric("labelled passage first, unjudged ones left out", "share", BY_LABELS),
    "first_judged": Metric("first passage was judged", "share", BY_LABELS),
}
"""Metrics of a row without gold that has a passage labelled relevant. A passage without a label may be relevant or
not: the first two metrics count it as irrelevant, the third leaves it out of the list."""

JUDGED = "gold, else judged by the examiner"
JUDGED_NAMES = {"top1": "right passage first, judged", "ndcg": "nDCG@10, judged", "recall": "recall@10, judged"}
JUDGED_METRICS = {
    "gold_top1": Metric("gold passage first, rows with gold"),
    "pooled_top1": Metric("right passage first, rows judged by the examiner", "share", JUDGED),
    "pooled_ndcg": Metric("nDCG@10 of these, unjudged as irrelevant", "share", JUDGED),
    "first_judged": Metric("first passage was judged", "share", JUDGED),
    "shown_judged": Metric("judged among the ten first", "share", JUDGED),
}
"""Metrics that are reported in addition to METRICS if the examiner judged rows without gold. `top1`, `ndcg` and
`recall` of METRICS then cover the rows with gold and the judged rows together."""

SYSTEM_METRICS = {
    "latency_p50": Metric("latency, median", "milliseconds", "students measured, teacher by journal"),
    "latency_p95": Metric("latency, 95th percentile", "milliseconds", "students measured, teacher by journal"),
    "cost": Metric("cost per 1,000", "money", "use measured, prices set"),
}
"""Metrics with one number per system."""

JUDGE = "judge"
OUTSIDERS = {"judged_top1": "top1", JUDGE: "quality"}
"""Independent measure for each measure that training optimises, on the same scale. Gold checks the reranker's score
against the need; the examiner checks the training's judge."""


class RetrievalResult(NamedTuple):
    """The passages that a query retrieved."""

    ids: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    judged: float = 0.0
    """The first passage's score against the need; NaN from a service that scores against the query."""

    snapshot: str = ""
    title: str = ""
    """Title of the first passage."""


def metrics_by(by: By) -> dict[str, Metric]:
    """Return METRICS. If the examiner judged rows without gold, the affected metrics have names that say so."""
    if by == "gold":
        return METRICS
    judged = {name: Metric(words, "share", JUDGED) for name, words in JUDGED_NAMES.items()}
    return METRICS | judged


def measure_rewrite(row: Question, rewrite: str, retrieval: RetrievalResult) -> dict[str, float]:
    """Return every metric of METRICS except the examiner's `quality`. A metric is NaN if the row lacks the gold or
    the score that it needs."""
    text = normalise(rewrite)
    return {
        "top1": top1(retrieval.ids, row.gold),
        "ndcg": ndcg(retrieval.ids, row.gold),
        "recall": recall(retrieval.ids, row.gold),
        "judged_top1": retrieval.judged,
        "zero_hit": float(not retrieval.ids),
        "copied": float(is_copied(rewrite, (row.question,), (row.history_summary, *retrieval.texts))),
        "same": float(text == normalise(row.question)),
        "empty": float(not text),
        "length": float(len(rewrite)),
        "length_ratio": len(rewrite) / len(row.question),
        "invented": float(bool(invented_numbers(rewrite, row))),
    }


def measure_labels(labels: Sequence[Label], ids: Sequence[str]) -> dict[str, float]:
    """Return every metric of LABEL_METRICS; empty if no passage is labelled relevant."""
    gains, judged = passage_gains(labels), {label.id for label in labels}
    if not gains:
        return {}
    condensed = [passage for passage in ids[:TOP_K] if passage in judged]
    return {
        "labelled_top1": float(bool(ids) and ids[0] in gains),
        "labelled_ndcg": graded_ndcg(ids, gains, TOP_K),
        "condensed_top1": float(bool(condensed) and condensed[0] in gains),
        "first_judged": float(bool(ids) and ids[0] in judged),
    }


def measure_judged(grades: Mapping[str, int], ids: Sequence[str]) -> dict[str, float]:
    """Return the metrics of a row without gold, computed from the examiner's grades of passages.

    If the first passage has no grade, `top1` and `pooled_top1` are NaN. `ndcg` leaves out passages without a grade;
    `pooled_ndcg` counts them as irrelevant.
    """
    gains = passage_gains([Label(id=passage, grade=grade) for passage, grade in grades.items()])
    shown = ids[:TOP_K]
    condensed = [passage for passage in shown if passage in grades]
    first = NAN if ids and ids[0] not in grades else float(bool(ids) and ids[0] in gains)
    return {
        "top1": first,
        "pooled_top1": first,
        "ndcg": graded_ndcg(condensed, gains, TOP_K) if gains else NAN,
        "recall": len(set(shown) & gains.keys()) / len(gains) if gains else NAN,
        "pooled_ndcg": graded_ndcg(shown, gains, TOP_K) if gains else NAN,
        "first_judged": float(ids[0] in grades) if ids else NAN,
        "shown_judged": len(condensed) / len(shown) if shown else NAN,
    }


def top1(ids: Sequence[str], gold: Sequence[str]) -> float:
    return float(bool(ids) and ids[0] in gold) if gold else NAN


def ndcg(ids: Sequence[str], gold: Sequence[str]) -> float:
    """Return nDCG@10: 1 if all gold passages are first; NaN without gold."""
    return graded_ndcg(ids, dict.fromkeys(gold, 1.0), TOP_K) if gold else NAN


def recall(ids: Sequence[str], gold: Sequence[str]) -> float:
    return len(set(ids[:TOP_K]) & set(gold)) / len(set(gold)) if gold else NAN


def rank(ids: Sequence[str], gold: Sequence[str]) -> int | None:
    """Return the rank of the first gold passage, from 1; None if no gold passage is among the first ten."""
    return next((number for number, hit in enumerate(ids[:TOP_K], 1) if hit in gold), None)


def invented_numbers(rewrite: str, row: Question) -> set[str]:
    """Return the numbers in the rewrite that are in none of question, history, user profile and need. The server's
    guard and the reward read numbers in the same way."""
    return numbers_without_source(rewrite, (row.question, row.history_summary, row.user_profile, row.need))
