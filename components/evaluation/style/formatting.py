"""How the style evaluation's numbers read in the report and on the terminal."""

import math
from collections.abc import Mapping
from typing import Any

from qinglan.report_format import NO_VALUE, format_points

SYSTEMS = {"model": "model", "before": "model, before its temperature", "baseline": "baseline"}
MEASURES = {
    "accuracy": "accuracy", "macro_f1": "macro F1", "weighted_f1": "weighted F1",
    "ece": "calibration error (ECE)", "log_loss": "log loss", "brier": "Brier score",
}  # fmt: skip
SHARES = ("accuracy", "macro_f1", "weighted_f1", "ece")


def share(value: Any) -> str:
    return f"{value:.1%}" if _known(value) else NO_VALUE


def number(value: Any, measure: str) -> str:
    """A measure's value in its own unit."""
    if not _known(value):
        return NO_VALUE
    return share(value) if measure in SHARES else f"{value:.3f}"


def format_difference(value: Any, measure: str) -> str:
    """A difference: points of a share, else in its own unit."""
    if not _known(value):
        return NO_VALUE
    return format_points(value) if measure in SHARES else f"{value:+.3f}"


def interval(found: Mapping[str, Any], measure: str = "accuracy") -> str:
    """`[low, high]`; empty where there is none."""
    if not _known(found["low"]) or not _known(found["high"]):
        return ""
    return f"[{number(found['low'], measure)}, {number(found['high'], measure)}]"


def format_difference_interval(found: Mapping[str, Any], measure: str) -> str:
    return f"[{format_difference(found['low'], measure)}, {format_difference(found['high'], measure)}]"


def headline(evaluation: Mapping[str, Any]) -> str:
    """The verdict in one sentence."""
    if evaluation["verdict"]["promote"]:
        return "Promote: the style model beats a bag of characters, loses no label to it, and knows how sure it is."
    return "Hold: the style model stays where it is."


def _known(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
