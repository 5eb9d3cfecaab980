"""Finds the row of a table that names its columns, because exports often have titles and dates above it.

header_index([["Customer questions Q3"], ["Question", "History", "Date"]], [], {"Question"}.__contains__)     1
"""

from collections.abc import Callable, Sequence

FIRST_ROWS = 10
"""Number of rows at the top, blank rows not counted, that are searched for the column names."""

IsName = Callable[[str], bool]


def no_name(text: str) -> bool:
    """An `is_name` that knows no column name. With it, the first row is taken for the column names, unless it lacks a
    required name."""
    return False


def header_index(rows: Sequence[Sequence[str]], required: Sequence[str], is_name: IsName) -> int:
    """Return the index of the row with the column names. `rows` are the first rows of a table, each as a list of
    filled cells.

    It is the first row, unless that row lacks the names, and a later row has them and has more cells than all rows
    above it.
    """

    def fits(cells: Sequence[str]) -> bool:
        return set(required) <= {*cells} if required else any(map(is_name, cells))

    # A title has one cell, but each column name has its own cell, so the row must be wider than all rows above it.
    if rows and not fits(rows[0]):
        for at, cells in enumerate(rows):
            if fits(cells) and len(cells) > max(map(len, rows[:at]), default=0):
                return at
    return 0
