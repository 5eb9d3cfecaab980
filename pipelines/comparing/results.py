"""comparison.json, put together from every row's numbers and the journals: pure functions."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.measures import METRICS
from components.evaluation.rewriter.results import MetricTable, system_metrics
from pipelines.comparing.recommendation import Recommendation, TeacherDifference, TeacherScore, recommend
from pipelines.comparing.score_teachers import TeacherRewrite
from qinglan import statistics
from qinglan.llm.journal_reader import Attempt
from qinglan.statistics import Columns

COMPARED = ("top1", "ndcg", "recall", "judged_top1", "quality", "zero_hit", "length")
DECIDING = ("top1", "judged_top1", "quality")
"""The first that enough rows know decides."""

ENOUGH_KNOWN = 0.5
"""Share of the rows."""

UNITS = {"top1": "points", "judged_top1": "points", "quality": "of 5"}
SCALES = {"quality": 4.0}
"""From 1 to 5: the margin, a share of the scale, is four times as wide."""

Json = dict[str, Any]


class JournalUsage(NamedTuple):
    """One teacher's journal, as far as these rows go."""

    attempts: list[Attempt]
    tokens: Json
    """Of the whole journal: input, output and reasoning, by answer."""


def deciding_metric(table: MetricTable) -> str:
    """Gold where people labelled enough, else the first passage's score against the need, else the examiner."""
    for metric in DECIDING[:-1]:
        if (~np.isnan(table.values[table.systems[0], metric])).mean() >= ENOUGH_KNOWN:
            return metric
    return DECIDING[-1]


def teacher_results(
    table: MetricTable,
    written: Mapping[str, Sequence[TeacherRewrite]],
    spent: Mapping[str, JournalUsage],
    config: EvaluateConfig,
) -> Json:
    """Each teacher's levels, and the plain question's."""
    levels = system_metrics(table, config)
    return {
        name: {**found, **(_teacher_costs(written[name], spent[name], config) if name in written else {})}
        for name, found in levels.items()
    }


def _teacher_costs(written: Sequence[TeacherRewrite], spent: JournalUsage, config: EvaluateConfig) -> Json:
    """What it took, and what did not come."""
    milliseconds = [
        1000 * one.seconds for one in spent.attempts if one.outcome == "answered" and one.seconds is not None
    ]
    times = {
        name: statistics.quantile(milliseconds, share, config.draws, config.seed)._asdict()
        for name, share in (("latency_p50", 0.5), ("latency_p95", 0.95))
    }
    failed = Counter(one.reason for one in written if one.reason)
    given = len(written) - failed.total()
    outcomes = Counter(one.outcome for one in spent.attempts)
    return {
        **times,
        "cost": {"value": 1000 * sum(one.cost for one in spent.attempts) / given if given else math.nan, "n": given},
        "failed": {"rows": failed.total(), "share": failed.total() / len(written), "reasons": dict(failed)},
        "calls": {"sent": len(spent.attempts), **{name: outcomes[name] for name in ("answered", "rejected", "lost")}},
        "tokens": spent.tokens,
    }


def paired_results(
    table: MetricTable, names: Sequence[str], metric: str, margin: float, config: EvaluateConfig
) -> Json:
    """Each pair's differences on the same rows, Holm's correction over pairs, and how many rows would show more."""
    pairs = list(combinations(names, 2))
    keys = [(pair, one) for pair in pairs for one in COMPARED]
    columns = np.column_stack([table.values[a, one] - table.values[b, one] for (a, b), one in keys])
    found = dict(
        zip(keys, statistics.paired_differences(columns, table.conversations, config.draws, config.seed), strict=True)
    )
    ps = {f"{a}_vs_{b}": found[(a, b), metric].p for a, b in pairs}
    adjusted = statistics.holm({name: p for name, p in ps.items() if not math.isnan(p)})
    out: Json = {}
    for a, b in pairs:
        name, column = f"{a}_vs_{b}", table.values[a, metric] - table.values[b, metric]
        out[name] = {
            "one": a, "other": b, "metric": metric, **found[(a, b), metric]._asdict(),
            "p_holm": adjusted.get(name, math.nan), "power": power(column, table, metric, margin),
            "metrics": {one: found[(a, b), one]._asdict() for one in COMPARED},
        }  # fmt: skip
    return out


def power(column: Columns, table: MetricTable, metric: str, margin: float) -> Json:
    """How many rows like these would show the difference seen, and one as large as the margin."""
    known = column[~np.isnan(column)]
    factor = statistics.clustering_factor(column, table.conversations)
    discordant = float((known != 0).mean()) if len(known) else math.nan
    deviation = float(known.std()) if len(known) else math.nan

    def needed(difference: float) -> int | None:
        if metric == "top1":
            return statistics.queries_needed(difference, discordant, factor)
        return statistics.mean_queries_needed(difference, deviation, factor)

    return {
        "rows": len(known), "discordant": discordant, "deviation": deviation, "clustering": factor,
        "needed": needed(float(known.mean())) if len(known) else None, "needed_for_margin": needed(margin),
    }  # fmt: skip


def recommendation(teachers: Json, paired: Json, names: Sequence[str], metric: str, margin: float) -> Recommendation:
    standings = [
        TeacherScore(name, teachers[name][metric]["value"], teachers[name]["cost"]["value"],
                 teachers[name]["failed"]["share"])
        for name in names
    ]  # fmt: skip
    gaps = {
        (one["one"], one["other"]): TeacherDifference(
            one["difference"], one["low"], one["high"], one["p_holm"], one["power"]["needed"],
            one["power"]["needed_for_margin"], one["n"], one["conversations"],
        )
        for one in paired.values()
    }  # fmt: skip
    rows = max((one["n"] for one in paired.values()), default=0)
    return recommend(standings, gaps, margin, rows, UNITS[metric])


def scaled(margin: float, metric: str) -> float:
    """The margin in the metric's own unit."""
    return margin * SCALES.get(metric, 1.0)


def why_it_decides(metric: str, table: MetricTable) -> str:
    """Said beside the verdict: another metric could say otherwise."""
    known = int((~np.isnan(table.values[table.systems[0], metric])).sum())
    total, name = len(table.tenant_of), METRICS[metric].name
    if metric == "top1":
        return f"Decided by: {name}, on {known:,} of {total:,} rows that people labelled."
    lacking = "Fewer than half of the rows are labelled, so this is judged by a model, not known"
    return f"Decided by: {name}, on {known:,} of {total:,} rows. {lacking}."
