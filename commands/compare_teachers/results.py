"""Compute comparison.json from the metrics of every row and the journals; pure functions."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from commands.compare_teachers.recommendation import (
    P,
    Recommendation,
    Scale,
    TeacherDifference,
    TeacherScore,
    recommend,
)
from commands.compare_teachers.score_teachers import PLAIN, TeacherRewrite
from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.measures import METRICS
from qinglan.evaluation import statistics
from qinglan.evaluation.metric_table import MetricTable, Pair
from qinglan.llm.paid.journal_reader import Attempt

COMPARED = ("top1", "ndcg", "recall", "judged_top1", "quality", "zero_hit", "length")
DECIDING = ("top1", "judged_top1", "quality")
"""Metrics that may decide, in order of preference; the first one that is known on enough rows decides."""

ENOUGH_KNOWN = 0.5
"""Share of the rows on which a deciding metric must be known."""

UNITS = {"top1": "points", "judged_top1": "points", "quality": "of 5"}
SCALES = {"quality": 4.0}
"""Width of a metric's scale, if not 1; the margin is a share of it. The examiner's scores go from 1 to 5."""

Json = dict[str, Any]


class JournalUsage(NamedTuple):
    """Calls and tokens from a teacher's journal."""

    attempts: list[Attempt]
    tokens: Json
    """Mean input, output and reasoning tokens of an answer, over the whole journal."""


def deciding_metric(table: MetricTable) -> str:
    """Choose the metric: by gold labels if there are enough, else by the judged first passage, else the examiner."""
    for metric in DECIDING[:-1]:
        if table.known(table.systems[0], metric) >= ENOUGH_KNOWN * table.rows:
            return metric
    return DECIDING[-1]


def teacher_results(
    table: MetricTable,
    rewrites: Mapping[str, Sequence[TeacherRewrite]],
    spent: Mapping[str, JournalUsage],
    config: EvaluateConfig,
) -> Json:
    """Compute the metric levels of every teacher and of the plain question, with the teachers' costs."""
    return {
        name: {**levels, **(_teacher_costs(rewrites[name], spent[name], config) if name in rewrites else {})}
        for name, levels in table.levels().items()
    }


def _teacher_costs(rewrites: Sequence[TeacherRewrite], spent: JournalUsage, config: EvaluateConfig) -> Json:
    """Compute a teacher's latency, cost, failed rows, calls and tokens."""
    milliseconds = [
        1000 * attempt.seconds
        for attempt in spent.attempts
        if attempt.outcome == "answered" and attempt.seconds is not None
    ]
    times = {
        name: statistics.quantile(milliseconds, share, config.draws, config.seed)._asdict()
        for name, share in (("latency_p50", 0.5), ("latency_p95", 0.95))
    }
    failed = Counter(rewrite.reason for rewrite in rewrites if rewrite.reason)
    answered = len(rewrites) - failed.total()
    outcomes = Counter(attempt.outcome for attempt in spent.attempts)
    cost = 1000 * sum(attempt.cost for attempt in spent.attempts) / answered if answered else math.nan
    return {
        **times,
        "cost": {"value": cost, "n": answered},
        "failed": {"rows": failed.total(), "share": failed.total() / len(rewrites), "reasons": dict(failed)},
        "calls": {"sent": len(spent.attempts), **{name: outcomes[name] for name in ("answered", "rejected", "lost")}},
        "tokens": spent.tokens,
    }


def paired_results(table: MetricTable, names: Sequence[str], metric: str, margin: float) -> Json:
    """Compute every pair's differences on the same rows, with Holm's correction and the rows needed for a result."""
    pairs = list(combinations(names, 2))
    gaps = table.compare(pairs, COMPARED, {"": None})
    adjusted = statistics.holm({"_vs_".join(pair): gaps[pair, "", metric]["p"] for pair in pairs})
    return {
        name: {
            "one": pair[0], "other": pair[1], "metric": metric, **gaps[pair, "", metric],
            "p_holm": adjusted.get(name, math.nan), "power": power(table, pair, metric, margin),
            "metrics": {compared: gaps[pair, "", compared] for compared in COMPARED},
        }
        for pair in pairs
        if (name := "_vs_".join(pair))
    }  # fmt: skip


def power(table: MetricTable, pair: Pair, metric: str, margin: float) -> Json:
    """Estimate the rows needed to show the measured difference, and one as large as the margin."""
    spread = table.spread(pair, metric)
    needed = spread.needed if metric == "top1" else spread.needed_for_mean
    return {
        "rows": spread.queries, "discordant": spread.discordant, "deviation": spread.deviation,
        "clustering": spread.clustering, "needed": needed(spread.mean), "needed_for_margin": needed(margin),
    }  # fmt: skip


def recommendation(teachers: Json, paired: Json, names: Sequence[str], metric: str, margin: float) -> Recommendation:
    standings = [
        TeacherScore(name, teachers[name][metric]["value"], teachers[name]["cost"]["value"],
                 teachers[name]["failed"]["share"])
        for name in names
    ]  # fmt: skip
    gaps = {
        (gap["one"], gap["other"]): TeacherDifference(
            gap["difference"], gap["low"], gap["high"], gap["p_holm"], gap["power"]["needed"],
            gap["power"]["needed_for_margin"], gap["n"], gap["conversations"],
        )
        for gap in paired.values()
    }  # fmt: skip
    rows = max((gap["n"] for gap in paired.values()), default=0)
    advice = recommend(standings, gaps, margin, rows, UNITS[metric])
    return none_helps(advice, teachers, names, metric)


def none_helps(advice: Recommendation, teachers: Json, names: Sequence[str], metric: str) -> Recommendation:
    """The advice, or to take none if the plain question is shown to be better than every teacher."""
    gaps = [teachers[name]["against_plain"] for name in names]
    if not all(gap["high"] < 0 and gap["p"] < P for gap in gaps):
        return advice
    best = max(teachers[name][metric]["value"] for name in names)
    scale = Scale(0.0, UNITS[metric])
    first = (
        "Take none of them: no rewrite is better than every teacher. The plain question has "
        f"{scale.amount(teachers[PLAIN][metric]['value'], sign=False)}, the best teacher "
        f"{scale.amount(best, sign=False)}. Change generate.system_prompt, or try other models."
    )
    return Recommendation("none", "", [first, *advice.lines[1:]])


def against_plain(table: MetricTable, names: Sequence[str], metric: str) -> Json:
    """The deciding metric of every teacher minus that of the plain question, paired."""
    gaps = table.compare([(name, PLAIN) for name in names], [metric], {"": None})
    return {name: gaps[(name, PLAIN), "", metric] for name in names}


def scaled(margin: float, metric: str) -> float:
    """Convert the margin into the metric's own unit."""
    return margin * SCALES.get(metric, 1.0)


def why_it_decides(metric: str, table: MetricTable) -> str:
    """Name the deciding metric in a sentence, as another metric could lead to another choice."""
    labelled, total, name = table.known(table.systems[0], metric), table.rows, METRICS[metric].name
    if metric == "top1":
        return f"Decided by: {name}, on {labelled:,} of {total:,} rows that people labelled."
    lacking = "Fewer than half of the rows are labelled, so this is judged by a model, not known"
    return f"Decided by: {name}, on {labelled:,} of {total:,} rows. {lacking}."
