"""The row of a table that names its columns: exports have titles and dates above it. A pure function.

header_index([["Customer questions Q3"], ["Question", "History", "Date"]], [], {"Question"}.__contains__)     1
"""

from collections.abc import Callable, Sequence

FIRST_ROWS = 10
"""Number of first rows, without blank ones, among which the names of columns are looked for."""

IsName = Callable[[str], bool]


def no_name(text: str) -> bool:
    """Know no name: the first row holds the names of columns unless it lacks one that is required."""
    return False


def header_index(rows: Sequence[Sequence[str]], required: Sequence[str], is_name: IsName) -> int:
    """The index among the first rows, each its filled cells, of the names of columns.

    That is the first row, unless it has no known name and a later one has, with more cells than all above it.
    """

    def fits(cells: Sequence[str]) -> bool:
        return set(required) <= {*cells} if required else any(map(is_name, cells))

    # A title has one cell, and names of columns have one each: the row must be wider than all above it.
    if rows and not fits(rows[0]):
        for at, cells in enumerate(rows):
            if fits(cells) and len(cells) > max(map(len, rows[:at]), default=0):
                return at
    return 0
