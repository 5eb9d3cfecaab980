"""The style report's own figures: a confusion matrix, reliability by confidence, accuracy by coverage."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from qinglan.pages.svg_charts import line_element, svg_figure, text_element

WIDTH, HEIGHT = 400, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 24, 40, 40
BLUE, GREY, RED = "#1f5fa8", "#6b7280", "#b3452c"
COLOURS = {"model": BLUE, "baseline": GREY}
CELL = 58
COVERAGES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
TENTHS = tuple(at / 10 for at in range(0, 11, 2))


def confusion_figure(title: str, labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Draw a confusion matrix: true labels down, predicted labels across. A cell's shade is its share of the rows
    with that true label."""
    left = 84
    parts = [text_element(left, 16, title, "start", "#333", bold=True)]
    for at, name in enumerate(labels):
        parts.append(text_element(left + CELL * (at + 0.5), 40, _short(name), "middle", "#555"))
    for down, row in enumerate(counts):
        y = 48 + CELL * 0.6 * down
        parts.append(text_element(left - 8, y + CELL * 0.3 + 4, _short(labels[down]), "end", "#555"))
        for across, count in enumerate(row):
            part = count / (sum(row) or 1)
            colour = BLUE if down == across else RED
            parts.append(
                f'<rect x="{left + CELL * across}" y="{y:.1f}" width="{CELL - 2}" height="{CELL * 0.6 - 2:.1f}" '
                f'rx="3" fill="{colour}" fill-opacity="{0.04 + 0.9 * part:.2f}"/>'
            )
            ink, x = "#fff" if part > 0.5 else "#333", left + CELL * (across + 0.5) - 1
            parts.append(text_element(x, y + CELL * 0.3 + 4, str(count), "middle", ink))
    width = left + CELL * len(labels) + 8
    return svg_figure(title, 48 + CELL * 0.6 * len(labels) + 8, parts, max(width, WIDTH))


def reliability_figure(title: str, bins: Sequence[Mapping[str, Any]]) -> str:
    """Draw a bar for each bin of confidence: its height is the accuracy, with the number of answers on top. A red
    line marks the bin's mean confidence, where the bar should end."""
    most = max((part["n"] for part in bins), default=1)
    parts = [text_element(LEFT, 16, title, "start", "#333", bold=True), *_grid(TENTHS, TENTHS, "confidence")]
    for part in bins:
        start, end = _across(part["from"]), _across(part["to"])
        high, sure = _up(part["accuracy"]), _up(part["confidence"])
        parts += [
            f'<rect x="{start + 1:.1f}" y="{high:.1f}" width="{end - start - 2:.1f}" height="{_up(0) - high:.1f}" '
            f'fill="{BLUE}" fill-opacity="{0.2 + 0.7 * part["n"] / most:.2f}"/>',
            line_element(start + 1, sure, end - 1, sure, RED, width=2),
            text_element((start + end) / 2, TOP - 5, str(part["n"]), "middle", GREY, size=9),
        ]
    parts.append(line_element(_across(0), _up(0), _across(1), _up(1), "#555", "4 3"))
    return svg_figure(title, HEIGHT, parts, WIDTH)


class CoveragePoint(NamedTuple):
    """A measure at one coverage, the share of answers that are kept, with its interval."""

    coverage: float
    value: float
    low: float
    high: float


def coverage_figure(title: str, series: Mapping[str, Sequence[CoveragePoint]]) -> str:
    """Draw a line for each system from all answers (left) to the surest half (right). The band is the model's
    interval."""
    least = min((min(point.value, point.low) for points in series.values() for point in points), default=0.0)
    step = next((step for step in (0.05, 0.1) if 1 - least <= 6 * step), 0.2)
    ticks = [1 - step * at for at in range(math.ceil(round((1 - least) / step, 6)), -1, -1)]  # from below least to 1
    ys = (ticks[0], ticks[-1])
    parts = [text_element(LEFT, 16, title, "start", "#333", bold=True), *_grid(COVERAGES, ticks, "answers kept")]
    for at, (name, points) in enumerate(series.items()):
        colour = COLOURS.get(name, RED)
        line = [(_across(point.coverage, COVERAGES), _up(point.value, ys)) for point in points]
        if name == "model":
            upper = [(x, _up(point.high, ys)) for (x, _), point in zip(line, points, strict=True)]
            lower = [(x, _up(point.low, ys)) for (x, _), point in zip(line, points, strict=True)]
            parts.append(f'<polygon points="{_path([*upper, *lower[::-1]])}" fill="{BLUE}" fill-opacity="0.13"/>')
        parts.append(f'<polyline points="{_path(line)}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        y = _up(ys[0], ys) - 8 - 16 * (len(series) - 1 - at)
        parts.append(text_element(WIDTH - RIGHT, y, name, "end", colour, bold=True))
    return svg_figure(title, HEIGHT, parts, WIDTH)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _grid(xs: Sequence[float], ys: Sequence[float], name: str) -> list[str]:
    """Both axes, with their labels."""
    ends = (ys[0], ys[-1])
    parts = [text_element((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, name, "middle", "#777", size=11)]
    for y in ys:
        parts.append(line_element(LEFT, _up(y, ends), WIDTH - RIGHT, _up(y, ends), "#ddd"))
        parts.append(text_element(LEFT - 6, _up(y, ends) + 4, f"{y:.0%}", "end", "#777", size=11))
    y = HEIGHT - BOTTOM + 16
    return parts + [text_element(_across(x, xs), y, f"{x:.0%}", "middle", "#777", size=11) for x in xs]


def _across(value: float, ticks: Sequence[float] = TENTHS) -> float:
    return LEFT + (value - ticks[0]) / (ticks[-1] - ticks[0]) * (WIDTH - LEFT - RIGHT)


def _up(value: float, ends: tuple[float, float] = (0.0, 1.0)) -> float:
    inside = min(max((value - ends[0]) / (ends[1] - ends[0]), 0.0), 1.0)
    return HEIGHT - BOTTOM - inside * (HEIGHT - TOP - BOTTOM)


def _short(name: str) -> str:
    """Cut a label with more than six characters, so that it fits its cell."""
    return name if len(name) <= 6 else name[:5] + "…"
