"""The evaluation for a terminal or a log: the verdict, the plan's table, the systems, the pairs."""

from collections.abc import Mapping
from typing import Any

from components.evaluation.rewriter.formatting import (
    ALL_METRICS,
    NAMES,
    PLAN,
    format_difference,
    headline,
    metric_differences,
    number,
    pair_name,
)
from components.evaluation.rewriter.measures import SYSTEM_METRICS
from qinglan.leaks import describe_leaks
from qinglan.report_format import NO_VALUE, format_p_value, markdown_table

SHOWN = ("top1", "ndcg", "recall", "quality", "zero_hit", "copied", "invented", "length", *SYSTEM_METRICS)

COMPARED = ("difference", "95 %", "p", "queries", "won / lost")


def to_markdown(evaluation: Mapping[str, Any]) -> str:
    """Tables of evaluation.json, nothing added."""
    parts = [f"**{headline(evaluation)}**", *(f"- {reason}" for reason in evaluation["verdict"]["reasons"]), ""]
    return "\n".join(
        [
            *parts,
            plan_table(evaluation),
            "",
            systems_table(evaluation),
            "",
            pairs_table(evaluation),
            "",
            metrics_table(evaluation),
            "",
            judges_line(evaluation),
            "",
            describe_leaks(evaluation.get("leaks")),
            "",
        ]
    )


def plan_table(evaluation: Mapping[str, Any]) -> str:
    """Part 6 of the plan: what it expects, and what was measured."""
    systems = evaluation["systems"]
    rows = []
    for metric in PLAN:
        row = [ALL_METRICS[metric].name]
        for name, expected in evaluation["expected"].items():
            found = systems.get(name, {}).get(metric, {})
            said = f"{number(found.get('value'), metric)}{' (set)' if found.get('how') == 'set' else ''}"
            row += [number(expected.get(metric), metric), said]
        rows.append(row)
    header = ["", *(word for name in evaluation["expected"] for word in (f"{NAMES[name]}, expected", "measured"))]
    return markdown_table(header, rows)


def systems_table(evaluation: Mapping[str, Any]) -> str:
    """A row for each metric, as a terminal is narrow; the intervals are in evaluation.json and on the page."""
    systems = evaluation["systems"]
    rows = [
        [
            ALL_METRICS[metric].name,
            *(number(found.get(metric, {}).get("value"), metric) for found in systems.values()),
        ]
        for metric in SHOWN
    ]
    return markdown_table(["", *(NAMES[name] for name in systems)], rows)


def pairs_table(evaluation: Mapping[str, Any]) -> str:
    rows = [_pair_row(pair_name(name), one, "top1") for name, one in evaluation["paired"].items()]
    return markdown_table(["gold passage first, points", *COMPARED], rows)


def metrics_table(evaluation: Mapping[str, Any]) -> str:
    """Candidate and teacher by every metric that is compared."""
    pair = f"{evaluation['candidate']}_vs_teacher"
    rows = [
        _pair_row(ALL_METRICS[metric].name, one, metric)
        for metric, one in metric_differences(evaluation, pair).items()
    ]
    return markdown_table([pair_name(pair), *COMPARED], rows)


def _pair_row(name: str, one: Mapping[str, Any], metric: str) -> list[str]:
    difference, low, high = (format_difference(one.get(part), metric) for part in ("difference", "low", "high"))
    counts = str(one.get("n", NO_VALUE)), f"{one.get('wins', NO_VALUE)} / {one.get('losses', NO_VALUE)}"
    return [name, difference, f"[{low}, {high}]", format_p_value(one.get("p")), *counts]


def judges_line(evaluation: Mapping[str, Any]) -> str:
    """How far the two judges agree, or that they are one."""
    found = evaluation["agreement"]
    if found["same_model"]:
        return f"Examiner and training judge are one model, {found['judge']}: its scores are no second opinion."
    ranks, order, apart = (number(found[name], "quality") for name in ("spearman", "kendall", "mean_difference"))
    return (
        f"Examiner {found['examiner']} and training judge {found['judge']} on {found['n']} rewrites: "
        f"Spearman {ranks}, Kendall {order}, {apart} points apart on average."
    )
