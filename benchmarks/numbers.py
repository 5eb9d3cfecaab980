"""How many invented numbers the guard finds, and how many faithful ones it takes for invented: precision and recall.

The pairs of tests/qinglan/text/number_pairs.tsv are a text, and a rewrite of it that is faithful or invents a
number. They were written before the rules of 2026-11-28; the rules were made on every second
pair, the others were held out.
"""

import csv
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.report import report
from qinglan.text.quantities import numbers_without_source

PAIRS = Path(__file__).parents[1] / "tests/qinglan/text/number_pairs.tsv"
LEAST_PRECISION = 0.95


class Pair(NamedTuple):
    held_out: bool
    invented: bool
    language: str
    source: str
    text: str

    @property
    def flagged(self) -> bool:
        return bool(numbers_without_source(self.text, [self.source]))


class Score(NamedTuple):
    pairs: int
    precision: float
    """Share of the flagged rewrites that invent a number."""

    recall: float
    """Share of the rewrites that invent a number which are flagged."""


def read_pairs() -> list[Pair]:
    with PAIRS.open(encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            Pair(row["set"] == "held out", row["kind"] == "invented", row["language"], row["source"], row["text"])
            for row in rows
        ]


def score(pairs: Sequence[Pair]) -> Score:
    flagged = [pair for pair in pairs if pair.flagged]
    right = sum(pair.invented for pair in flagged)
    return Score(len(pairs), right / len(flagged), right / sum(pair.invented for pair in pairs))


def wrong(pairs: Iterable[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair.flagged != pair.invented]


def main() -> None:
    pairs = read_pairs()
    started = time.perf_counter()
    missed = wrong(pairs)
    seconds = time.perf_counter() - started
    groups = {
        f"{language}, {'held out' if held_out else 'tuned'}": [
            pair for pair in pairs if (pair.language, pair.held_out) == (language, held_out)
        ]
        for language in ("zh", "en")
        for held_out in (False, True)
    }
    table = Table("pairs", "count", "precision", "recall", title="numbers without a source")
    for name, group in groups.items():
        pairs_of, precision, recall = score(group)
        table.add_row(name, str(pairs_of), f"{precision:.3f}", f"{recall:.3f}")
    Console(file=sys.stdout).print(table)
    for pair in missed:
        Console(file=sys.stdout).print(
            f"{'missed' if pair.invented else 'false alarm'}: {pair.source} -> {pair.text}", markup=False
        )
    held = score([pair for pair in pairs if pair.held_out])
    every = score(pairs)
    report("numbers", held.precision, LEAST_PRECISION, held.precision >= LEAST_PRECISION, pairs=every.pairs,
           recall=held.recall, precision_of_all=every.precision, recall_of_all=every.recall,
           microseconds=seconds / every.pairs * 1e6)  # fmt: skip


if __name__ == "__main__":
    main()
