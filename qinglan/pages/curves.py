"""Draws curves as SVG for log folders and reports. The SVG needs no scripts, fonts or other files."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

CURVE_FILE = "curve.svg"
"""Name of the file with the curve in the log folder of a training."""

WIDTH, HEIGHT = 640, 280
LEFT, RIGHT, TOP, BOTTOM = 76, 16, 40, 36
COLOURS = ("#1f5fa8", "#c2571a", "#2e7d4f", "#7a4fa3", "#8a6d1a")

Points = Sequence[tuple[float, float]]


def curve_svg(title: str, series: Mapping[str, Points]) -> str:
    """Draw each series as a line over a shared x axis. Values that are not finite and empty series are left out."""
    finite = {name: [(x, y) for x, y in points if math.isfinite(y)] for name, points in series.items()}
    shown = {name: points for name, points in finite.items() if points}
    xs = [x for points in shown.values() for x, _ in points] or [0.0]
    ys = [y for points in shown.values() for _, y in points] or [0.0]
    low, high = min(ys), max(ys)
    # A constant series has no height to scale by.
    high = high if high > low else low + 1

    def point(x: float, y: float) -> str:
        across = (x - min(xs)) / ((max(xs) - min(xs)) or 1)
        up = (y - low) / (high - low)
        return f"{LEFT + across * (WIDTH - LEFT - RIGHT):.1f},{HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-size="12" '
        f'font-family="sans-serif"><title>{escape(title)}</title>',
        f'<text x="{LEFT}" y="16" font-weight="bold">{escape(title)}</text>',
    ]
    for share in (0, 0.5, 1):
        y = HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
        value = low + share * (high - low)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{value:.3g}</text>')
    for x, anchor in ((min(xs), "start"), (max(xs), "end")):
        at = point(x, low).split(",")[0]
        parts.append(f'<text x="{at}" y="{HEIGHT - 14}" text-anchor="{anchor}">{x:g}</text>')
    for number, (name, points) in enumerate(shown.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(point(x, y) for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 120 * number}" y="32" fill="{colour}">{escape(name)}</text>')
    return "".join([*parts, "</svg>"])


def rows_curve(title: str, curves: Mapping[str, str], rows: Sequence[Mapping[str, float]]) -> str:
    """Draw metrics of a training by step; `curves` maps the label of a curve to the name of its metric."""
    return curve_svg(
        title, {label: [(row["step"], row[name]) for row in rows if name in row] for label, name in curves.items()}
    )


def write_curve_page(log: Path, page: Path) -> None:
    """Write the curve in a log folder as an HTML page, which an orchestrator shows beside the step."""
    curve = (log / CURVE_FILE).read_text(encoding="utf-8")
    page.write_text(f'<!doctype html><meta charset="utf-8"><title>Training</title>{curve}', encoding="utf-8")
