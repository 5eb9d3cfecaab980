"""A step's summary in Markdown, as KFP's page draws it."""

import re
from pathlib import Path
from typing import Protocol

SPACE = "&nbsp;" * 3
"""KFP's page sets no space between the columns of a table, and drops blanks at the end of a cell."""

CELL_END = re.compile(r" \| (?=\S)")


class Summary(Protocol):
    @property
    def path(self) -> str: ...


def write_summary(summary: Summary, markdown: str) -> None:
    """Write a step's summary, with space between the columns of its tables."""
    Path(summary.path).write_text("\n".join(map(_spaced, markdown.split("\n"))), encoding="utf-8")


def _spaced(line: str) -> str:
    """A line of a table with space behind each cell but the last; any other line as it is."""
    is_row = line.startswith("| ") and not line.startswith("| ---")
    return CELL_END.sub(f"{SPACE} | ", line) if is_row else line
