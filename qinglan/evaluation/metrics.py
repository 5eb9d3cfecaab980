"""Metrics and the format of their numbers, such as percent for a share and points for a difference of shares."""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

NO_VALUE = "–"
Unit = Literal["share", "score", "kappa", "characters", "milliseconds", "money"]
FORMATS: Mapping[Unit, str] = {"share": ".1%", "score": ".2f", "kappa": ".3f", "characters": ".1f", "money": ".3g"}


class Metric(NamedTuple):
    """Name and unit of a metric, and in `how` its source: measured, judged by a model, or a setting."""

    name: str
    unit: Unit = "share"
    how: str = "measured"
    most: float = 1.0
    """Upper end of the metric's scale in a figure."""

    def number(self, value: Any) -> str:
        if not is_number(value):
            return NO_VALUE
        if self.unit == "milliseconds":
            return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"
        return format(value, FORMATS[self.unit])

    def interval(self, estimate: Mapping[str, Any] | None) -> str:
        """Format an estimate's interval as `[low, high]`; empty if one of the ends is missing."""
        ends = [(estimate or {}).get(end) for end in ("low", "high")]
        return f"[{', '.join(map(self.number, ends))}]" if all(map(is_number, ends)) else ""

    def difference(self, value: Any) -> str:
        """Format a difference: in points for a share, else in the metric's own unit. It is never shown as -0.0."""
        if not is_number(value):
            return NO_VALUE
        return f"{100 * value:+z.1f}" if self.unit == "share" else f"{value:+z.2f}"

    def difference_interval(self, gap: Mapping[str, Any]) -> str:
        """Format a difference's interval as `[low, high]`; empty if both ends are missing."""
        ends = [gap.get(end) for end in ("low", "high")]
        return f"[{', '.join(map(self.difference, ends))}]" if any(map(is_number, ends)) else ""


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def format_p_value(value: Any) -> str:
    if not is_number(value):
        return NO_VALUE
    return f"{value:.4f}" if value >= 0.001 else "< .001"
