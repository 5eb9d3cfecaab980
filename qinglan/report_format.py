"""How numbers read in reports, and tables on a terminal."""

from collections.abc import Sequence
from typing import Any

from qinglan.terminal import visible

NO_VALUE = "–"


def format_points(value: Any) -> str:
    """A difference of shares."""
    return f"{100 * value:+.1f}" if isinstance(value, int | float) else NO_VALUE


def format_p_value(value: Any) -> str:
    if not isinstance(value, int | float):
        return NO_VALUE
    return f"{value:.4f}" if value >= 0.001 else "< .001"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(visible(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
