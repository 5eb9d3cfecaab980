"""The style report's own figures: a confusion matrix, and reliability by confidence."""

from collections.abc import Mapping, Sequence
from typing import Any

from qinglan.pages.svg_charts import line_element, svg_figure, text_element

WIDTH, HEIGHT = 400, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 24, 40, 40
BLUE, GREY, RED = "#1f5fa8", "#6b7280", "#b3452c"
CELL = 58
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
    parts = [text_element(LEFT, 16, title, "start", "#333", bold=True), *_grid()]
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


def _grid() -> list[str]:
    parts = [text_element((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "confidence", "middle", "#777", size=11)]
    for share in TENTHS:
        parts.append(line_element(LEFT, _up(share), WIDTH - RIGHT, _up(share), "#ddd"))
        parts.append(text_element(LEFT - 6, _up(share) + 4, f"{share:.0%}", "end", "#777", size=11))
    y = HEIGHT - BOTTOM + 16
    return parts + [text_element(_across(share), y, f"{share:.0%}", "middle", "#777", size=11) for share in TENTHS]


def _across(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _up(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _short(name: str) -> str:
    return name if len(name) <= 6 else name[:5] + "…"
