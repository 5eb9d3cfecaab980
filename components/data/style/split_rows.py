"""Assign each row to a split. Near-duplicate answers stay together, and each label is divided by the same shares. A
pure function of rows and seed."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from components.data.style.config import PrepareStyleConfig
from qinglan.errors import DataError
from qinglan.files.files import sha256_text
from qinglan.style.rows import Split, StyleRow
from qinglan.text.near_duplicates import comparable, group_near_duplicates

FEWEST = 2
"""Lowest number of different answers of a label: one to learn from, one to test on."""


def split_rows(rows: Sequence[StyleRow], config: PrepareStyleConfig) -> list[Split]:
    """Return the split of each row, in order. Raises a DataError if a label has too few different answers."""
    by_label = _groups_by_label(rows, config)
    sizes = {label.name: len(by_label.get(label.name, ())) for label in config.labels}
    if few := [f"{name} ({count})" for name, count in sizes.items() if count < FEWEST]:
        raise DataError(
            f"Too few different answers of {', '.join(few)}: each label needs {FEWEST}, one to learn from and one to "
            "test on. Label more, or take the label out of the mapping file and its rows out of the data."
        )
    out: list[Split] = ["train"] * len(rows)
    for name, same_label in by_label.items():
        count = len(same_label)
        # A label with few answers fills the test before dev, so dev may get none.
        test = max(1, round(count * config.test))
        dev = min(max(1, round(count * config.dev)), count - test - 1)
        shares: dict[Split, int] = {"test": test, "dev": dev, "train": count - test - dev}
        splits = [split for split, times in shares.items() for _ in range(times)]
        for split, members in zip(splits, _shuffled(same_label, rows, name, config.seed), strict=True):
            for at in members:
                out[at] = split
    return out


def fold_rows(rows: Sequence[StyleRow], config: PrepareStyleConfig) -> dict[str, int]:
    """Return the fold of each row, by row id. Near-duplicate answers are in the same fold, and each label is spread
    over all folds."""
    folds: dict[str, int] = {}
    groups = 0
    for name, same_label in sorted(_groups_by_label(rows, config).items()):
        for members in _shuffled(same_label, rows, name, config.seed):
            folds |= {rows[at].id: groups % config.folds for at in members}
            groups += 1
    return folds


def _groups_by_label(rows: Sequence[StyleRow], config: PrepareStyleConfig) -> dict[str, list[list[int]]]:
    groups: dict[int, list[int]] = defaultdict(list)
    for at, number in enumerate(group_near_duplicates([comparable(row.input) for row in rows], config.alike)):
        groups[number].append(at)
    by_label: dict[str, list[list[int]]] = defaultdict(list)
    for members in groups.values():
        by_label[Counter(rows[at].label for at in members).most_common(1)[0][0]].append(members)
    return by_label


def contradictions(rows: Sequence[StyleRow]) -> list[tuple[StyleRow, StyleRow]]:
    """Return pairs of rows with the same words but different labels. No model can be right on both rows."""
    first: dict[str, StyleRow] = {}
    repeats = []
    for row in rows:
        before = first.setdefault(comparable(row.input), row)
        if before.label != row.label:
            repeats.append((before, row))
    return repeats


def _shuffled(groups: list[list[int]], rows: Sequence[StyleRow], label: str, seed: int) -> list[list[int]]:
    return sorted(groups, key=lambda members: sha256_text(str(seed), label, rows[members[0]].input))
