"""How often the rewriter's guard would take back a good rewrite, and how often a spoiled one.

The sample tenants' teacher rewrites are the good ones: all that the stand-in teacher makes of their questions. Each
is then spoiled in every way that a guard is for, and should be taken back.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.report import report
from qinglan.prompts import teacher_messages
from qinglan.questions import Columns, read_questions
from qinglan.rewriter.guard import GUARDS, failed_guards
from qinglan.rows import Question
from standins.samples import TENANTS, write_sample
from standins.teacher.extractive_backend import load_extractive_backend

CONVERSATIONS = 1600
MOST_ALARMS = 0.005

SPOILED: dict[str, Callable[[Question, str], str]] = {
    "empty": lambda row, good: " 。",
    "too_long": lambda row, good: good * (200 // len(good) + 1),
    "markup": lambda row, good: f"{good}<|im_end|>",
    "history": lambda row, good: row.history_summary[:40],
    "invented_number": lambda row, good: f"{good} 每日97粒",
}


class Alarms(NamedTuple):
    """Figures of one tenant."""

    rows: int
    longest: int
    """Characters of the longest good rewrite."""

    false: dict[str, int]
    """Good rewrites, by the guard that takes them back."""

    caught: dict[str, tuple[int, int]]
    """Spoiled ones that are taken back, of how many."""


def alarms(tenant: str, folder: Path) -> Alarms:
    rows = list(rewritten(tenant, folder))
    false = {guard: sum(guard in failed_guards(row, good) for row, good in rows) for guard in GUARDS}
    caught = {}
    for guard, spoil in SPOILED.items():
        spoiled = [
            (row, spoil(row, good)) for row, good in rows if guard != "history" or len(row.history_summary) > 24
        ]
        caught[guard] = sum(bool(failed_guards(row, bad)) for row, bad in spoiled), len(spoiled)
    return Alarms(len(rows), max(len(good) for _, good in rows), false, caught)


def rewritten(tenant: str, folder: Path) -> Iterator[tuple[Question, str]]:
    """Every question, and what the stand-in teacher makes of it."""
    write_sample(tenant, folder, CONVERSATIONS, seed=0)
    brain = load_extractive_backend({tenant: folder / "knowledge_base.jsonl"})
    for row in read_questions(folder / "questions.xlsx", Columns(), tenant):
        if isinstance(row, Question):
            messages: list[dict[str, Any]] = [dict(entry.items()) for entry in teacher_messages(row)]
            yield row, str(brain.answer(tenant, messages, None))


def main() -> None:
    with TemporaryDirectory() as folder:
        figures = {tenant: alarms(tenant, Path(folder) / tenant) for tenant in TENANTS}
    table = Table("", *figures, title="taken back")
    table.add_row(
        "good rewrites (longest, characters)", *(f"{entry.rows:,} ({entry.longest})" for entry in figures.values())
    )
    for guard in GUARDS:
        table.add_row(f"of them by {guard}", *(str(entry.false[guard]) for entry in figures.values()))
    for guard in SPOILED:
        table.add_row(
            f"spoiled by {guard}", *("{:,} of {:,}".format(*entry.caught[guard]) for entry in figures.values())
        )
    Console(file=sys.stdout).print(table)
    rows = sum(entry.rows for entry in figures.values())
    false = sum(sum(entry.false.values()) for entry in figures.values())
    caught = [pair for entry in figures.values() for pair in entry.caught.values()]
    share = sum(hit for hit, _ in caught) / sum(count for _, count in caught)
    report("guard", false / rows, MOST_ALARMS, false / rows <= MOST_ALARMS, rows=rows, false=false, caught=share)


if __name__ == "__main__":
    main()
