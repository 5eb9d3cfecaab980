"""Draws charts for reports as inline SVG without scripts: intervals against zero, and bars with intervals."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from qinglan.messages import translated
from qinglan.terminal import visible

WIDTH, ROW, LEFT, RIGHT, TOP = 720, 30, 220, 150, 26
PLUS, MINUS, NEITHER = "#2e7d4f", "#b3452c", "#6b7280"


class ChartRow(NamedTuple):
    """A value with its interval. Charts leave out a row without a value, `low` or `high`."""

    label: str
    value: float | None
    low: float | None
    high: float | None
    text: str = ""
    """Text at the end of the row."""

    colour: str = ""


def forest_plot(title: str, lines: Sequence[ChartRow], unit: str = "points") -> str:
    """Draw differences with their intervals. A row is green if its whole interval is above zero, and red if it is
    below."""
    shown = _complete_rows(lines)
    ends = [0.0, *(end for row in shown for end in (row.low, row.high))]
    room = (max(ends) - min(ends) or 1.0) * 0.08
    low, high = min(ends) - room, max(ends) + room
    parts = [line_element(_x(0, low, high), TOP - 6, _x(0, low, high), TOP + ROW * len(shown), "#555", "3 3")]
    for at, row in enumerate(shown):
        y, colour = TOP + ROW * at + ROW / 2, PLUS if row.low > 0 else MINUS if row.high < 0 else NEITHER
        parts += [
            text_element(LEFT - 12, y + 4, row.label, "end"),
            line_element(_x(row.low, low, high), y, _x(row.high, low, high), y, colour, width=3),
            f'<circle cx="{_x(row.value, low, high):.1f}" cy="{y}" r="5" fill="{colour}"/>',
            text_element(WIDTH - RIGHT + 12, y + 4, row.text, "start"),
        ]
    parts += [
        text_element(_x(end, low, high), 14, f"{end:+.1f} {unit}" if end else "0", "middle", "#777")
        for end in _ticks(low, high)
    ]
    return svg_figure(title, TOP + ROW * len(shown) + 8, parts)


def bar_chart(title: str, lines: Sequence[ChartRow], most: float = 1.0) -> str:
    """Draw bars that begin at zero. A line over each bar's end shows its interval."""
    shown = _complete_rows(lines)
    most = max([most, *(row.high for row in shown)])
    parts = []
    for at, row in enumerate(shown):
        y = TOP + ROW * at + ROW / 2
        start, end = _x(0, 0, most), _x(row.value, 0, most)
        parts += [
            text_element(LEFT - 12, y + 4, row.label, "end"),
            f'<rect x="{start:.1f}" y="{y - 8}" width="{max(0.0, end - start):.1f}" height="16" rx="2" '
            f'fill="{row.colour or NEITHER}" fill-opacity="0.8"/>',
            line_element(_x(row.low, 0, most), y, _x(row.high, 0, most), y, "#222", width=1.5),
            *(
                line_element(_x(tip, 0, most), y - 5, _x(tip, 0, most), y + 5, "#222", width=1.5)
                for tip in (row.low, row.high)
            ),
            text_element(WIDTH - RIGHT + 12, y + 4, row.text, "start"),
        ]
    return svg_figure(
        title, TOP + ROW * len(shown) + 8, [text_element(LEFT, 14, title, "start", "#333", bold=True), *parts]
    )


class _CompleteRow(NamedTuple):
    label: str
    value: float
    low: float
    high: float
    text: str
    colour: str


def _complete_rows(lines: Sequence[ChartRow]) -> list[_CompleteRow]:
    return [
        _CompleteRow(row.label, row.value, row.low, row.high, row.text, row.colour)
        for row in lines
        if row.value is not None and row.low is not None and row.high is not None
    ]


def _ticks(low: float, high: float) -> list[float]:
    """Return the axis values that get a label: zero, and each end of the axis whose label would not overlap that of
    zero."""
    wide = high - low
    return [0.0, *(end for end in (low + 0.04 * wide, high - 0.04 * wide) if abs(end) > 0.22 * wide)]


def _x(value: float, low: float, high: float) -> float:
    return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)


def text_element(
    x: float, y: float, text: str, anchor: str, colour: str = "#333", bold: bool = False, size: int = 0
) -> str:
    """Build the SVG element of a text, translated into the person's language."""
    style = (' font-weight="600"' if bold else "") + (f' font-size="{size}"' if size else "")
    words = escape(visible(translated(text)))
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{style}>{words}</text>'


def line_element(x1: float, y1: float, x2: float, y2: float, colour: str, dash: str = "", width: float = 1) -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"{dashed}/>'
    )


def svg_figure(title: str, height: float, parts: Sequence[str], width: float = WIDTH) -> str:
    """Build the SVG of a figure from its parts. The title is its accessible name, read by screen readers."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" font-size="13" '
        f'font-family="sans-serif"><title>{escape(visible(translated(title)))}</title>{"".join(parts)}</svg>'
    )
