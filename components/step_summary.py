"""Write a step's summary in Markdown for KFP's page."""

import re
from pathlib import Path
from typing import Protocol

SPACE = "&nbsp;" * 3
"""Space added to the end of a cell, since KFP's page shows no space between columns, and drops plain blanks."""

CELL_END = re.compile(r" \| (?=\S)")


class Summary(Protocol):
    @property
    def path(self) -> str: ...


def write_summary(summary: Summary, markdown: str) -> None:
    """Write a step's summary, with space between the columns of its tables."""
    Path(summary.path).write_text("\n".join(map(_spaced, markdown.split("\n"))), encoding="utf-8")


def _spaced(line: str) -> str:
    """Return a table's line with space after each cell but the last; any other line unchanged."""
    is_row = line.startswith("| ") and not line.startswith("| ---")
    return CELL_END.sub(f"{SPACE} | ", line) if is_row else line
