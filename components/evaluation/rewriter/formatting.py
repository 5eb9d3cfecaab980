"""How numbers and systems read in the report and on the terminal."""

import math
from collections.abc import Mapping
from typing import Any

from components.evaluation.rewriter.measures import METRICS, SYSTEM_METRICS
from qinglan.report_format import NO_VALUE, format_points

NAMES = {"plain": "no rewrite", "history": "question + history", "teacher": "teacher", "sft": "SFT", "rl": "RL"}
ALL_METRICS = METRICS | SYSTEM_METRICS
PLAN = ("quality", "top1", "latency_p50", "cost")


def pair_name(pair: str) -> str:
    one, _, other = pair.partition("_vs_")
    return f"{NAMES.get(one, one)} − {NAMES.get(other, other)}"


def number(value: Any, metric: str) -> str:
    """A metric's value in its own unit."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return NO_VALUE
    kind = ALL_METRICS[metric].kind
    if kind == "share":
        return f"{value:.1%}"
    if kind == "milliseconds":
        return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"
    return f"{value:.3g}" if kind == "money" else f"{value:.1f}" if kind == "characters" else f"{value:.2f}"


def interval(found: Mapping[str, Any] | None, metric: str) -> str:
    """`[low, high]`; empty where there is none."""
    if not found or found.get("low") is None or found.get("high") is None:
        return ""
    return f"[{number(found['low'], metric)}, {number(found['high'], metric)}]"


def format_difference(value: Any, metric: str) -> str:
    """A difference in a metric: points of a share, else in its own unit."""
    if not isinstance(value, int | float):
        return NO_VALUE
    return format_points(value) if ALL_METRICS[metric].kind == "share" else f"{value:+.2f}"


def metric_differences(evaluation: Mapping[str, Any], pair: str) -> dict[str, Mapping[str, Any]]:
    """A pair's differences in the other metrics that are compared."""
    found = evaluation["paired"].get(pair, {})
    return {name: one for name, one in found.items() if name in ALL_METRICS and isinstance(one, Mapping)}


def headline(evaluation: Mapping[str, Any]) -> str:
    """The verdict in one sentence."""
    name = NAMES.get(str(evaluation.get("candidate")), "the candidate")
    if evaluation["verdict"]["promote"]:
        return (
            f"Promote: {name} finds the gold passage first more often than its teacher; nDCG and recall are no worse."
        )
    return f"Hold: {name} stays where it is."
