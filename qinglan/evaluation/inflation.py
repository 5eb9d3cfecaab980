"""Inflation factor: the gain by the measure that training optimises, divided by the gain by an independent measure.

inflation(signal, outsider, conversations, draws, seed)     # two columns of paired differences

Training raises the measure that it optimises (the signal), so the signal overstates the gain. A factor of 1 means
that the independent measure (the outsider) shows the same gain. Both measures must have the same scale. The factor is
undefined if the outsider shows no gain.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from qinglan.evaluation.metrics import is_number
from qinglan.evaluation.statistics import INTERVAL_PERCENTILES, Columns, Groups, bootstrap_sample, group_sums

STEEPEST = math.pi / 2 - 1e-6
"""Angle in radians from which the outsider's gain counts as zero, because of rounding."""


class Inflation(NamedTuple):
    """Mean gains by signal and outsider on the rows that have both, and their factor with its 95 % interval."""

    signal: float
    outsider: float
    factor: float
    """NaN if the outsider measured no gain."""

    low: float
    high: float
    """Infinite if the outsider's gain may be zero."""

    n: int
    conversations: int


def inflation(signal: Columns, outsider: Columns, conversations: Groups, draws: int, seed: int) -> Inflation:
    """Compute the factor from two columns of paired differences; rows that lack one of the numbers are left out."""
    both = ~np.isnan(signal) & ~np.isnan(outsider)
    columns = np.where(both[:, None], np.column_stack([signal, outsider]), math.nan)
    sums, counts = group_sums(columns, conversations)
    sums = sums[counts[:, 0] > 0]
    rows = int(both.sum())
    gains = sums.sum(axis=0) / rows if rows else np.full(2, math.nan)
    count = len(sums)
    if not gains[1] > 0:
        return Inflation(float(gains[0]), float(gains[1]), math.nan, math.nan, math.nan, rows, count)
    low, high = _interval(sums, float(np.arctan2(*gains)), draws, seed) if count > 1 else (math.nan, math.nan)
    return Inflation(float(gains[0]), float(gains[1]), float(gains[0] / gains[1]), low, high, rows, count)


def _interval(sums: Columns, centre: float, draws: int, seed: int) -> tuple[float, float]:
    """Return the 95 % interval of the factor, from percentiles of the angle of the point (outsider, signal) in
    bootstrap draws of conversations."""
    # A factor jumps from plus to minus infinity when the outsider's gain passes zero, but the angle is continuous.
    # Outside of the right half-plane, an angle has no finite factor. If neither measure changes in a draw, the draw
    # has no angle, so half of such draws are put at each end.
    drawn = bootstrap_sample(len(sums), lambda times: times @ sums, draws, seed)
    turned = np.arctan2(drawn[:, 0], drawn[:, 1]) - centre
    angles = centre + (turned + math.pi) % (2 * math.pi) - math.pi
    unmoved = np.flatnonzero(~drawn.any(axis=1))
    angles[unmoved] = np.where(np.arange(len(unmoved)) % 2, math.pi, -math.pi)
    low, high = np.percentile(angles, INTERVAL_PERCENTILES)
    return _factor(float(low)), _factor(float(high))


def _factor(angle: float) -> float:
    return math.tan(angle) if abs(angle) < STEEPEST else math.copysign(math.inf, angle)


def describe(part: Mapping[str, Any], signal: str, outsider: str) -> str:
    """Describe the factor in one sentence. `part` is an `Inflation` as evaluation.json holds it; `signal` and
    `outsider` are the names of the two measures."""
    if not part["n"]:
        return f"not defined: no question was measured by both “{signal}” and “{outsider}”."
    gains = (
        f"a gain of {part['signal']:+.3f} by “{signal}”, which training goes by, and of {part['outsider']:+.3f} by "
        f"“{outsider}”, on the same {part['n']:,} questions"
    )
    if not is_number(part["factor"]):
        return f"not defined: the outsider saw no gain ({gains})."
    low, high = (f"{part[end]:.2f}" if is_number(part[end]) else none for end, none in (("low", "−∞"), ("high", "∞")))
    interval = f" [{low}, {high}]" if part["conversations"] > 1 else ""
    return f"{part['factor']:.2f}{interval} times, from {gains}."
