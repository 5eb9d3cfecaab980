"""How often the rewriter's guard would take back a good rewrite, and how often a spoiled one. `... guard FILE...`

Good are the stand-in teacher's rewrites of the sample tenants, and what people wrote: our cases, and the public
corpora whose files are named (see human_rewrites.py). A rewrite of the samples is then spoiled in every way that a
guard is for, and should be taken back. For people's rewrites, the reward's checks are counted too: its floor, and its
penalty for numbers, with nothing known of the need but the question.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.human_rewrites import Case, corpus, own_cases
from benchmarks.report import report
from qinglan.prompts import teacher_messages
from qinglan.reward.episode import Prompt
from qinglan.reward.terms.floor_checks import is_copied, is_empty, is_malformed
from qinglan.reward.terms.penalties import invented_numbers
from qinglan.rewriter.guard import GUARDS, failed_guards
from qinglan.rows.questions import Columns, read_questions
from qinglan.rows.rows import Question
from standins.samples import TENANTS, write_sample
from standins.teacher.extractive_backend import load_extractive_backend

CONVERSATIONS = 1600
MOST_ALARMS = 0.005
MOST_REFUSED = 0.01
WIDTH = 140
UNFAITHFUL = "unfaithful"

SPOILED: dict[str, Callable[[Question, str], str]] = {
    "empty": lambda row, good: " 。",
    "too_long": lambda row, good: good * (200 // len(good) + 1),
    "markup": lambda row, good: f"{good}<|im_end|>",
    "history": lambda row, good: row.history_summary[:40],
    "invented_number": lambda row, good: f"{good} 每日97粒",
}


class Refusals(NamedTuple):
    """Figures of one collection of people's rewrites."""

    cases: int
    guards: Counter[str]
    """Rewrites by the guard that takes them back; `any` counts each once."""

    reward: Counter[str]
    """Rewrites by the reward's check that holds something against them."""


def refusals(cases: Sequence[Case]) -> Refusals:
    guards, reward = Counter[str](), Counter[str]()
    for number, case in enumerate(cases):
        failed = failed_guards(case, case.rewrite)
        guards.update([*failed, *(["any"] if failed else [])])
        reward.update(reward_faults(case, str(number)))
    return Refusals(len(cases), guards, reward)


def reward_faults(case: Case, row: str) -> list[str]:
    """Checks of the reward that a rewrite does not pass where nothing was retrieved and the need is the question."""
    prompt = Prompt(
        id=row, tenant_id=case.tenant_id, question=case.question, history_summary=case.history_summary,
        need=case.question, teacher_rewrite=case.rewrite,
    )  # fmt: skip
    text = case.rewrite
    floor = is_empty(text) or is_malformed(text) or is_copied(text, prompt, ())
    return [name for name, holds in (("floor", floor), ("numbers", invented_numbers(text, prompt) > 0)) if holds]


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
    people = own_cases() | {path.name: corpus(path) for path in map(Path, sys.argv[1:])}
    counted = {name: refusals([case for case in cases if case.rewrite.strip()]) for name, cases in people.items()}
    print_people(counted)
    with TemporaryDirectory() as folder:
        figures = {tenant: alarms(tenant, Path(folder) / tenant) for tenant in TENANTS}
    print_samples(figures)
    rows = sum(entry.rows for entry in figures.values())
    false = sum(sum(entry.false.values()) for entry in figures.values())
    caught = [pair for entry in figures.values() for pair in entry.caught.values()]
    share = sum(hit for hit, _ in caught) / sum(count for _, count in caught)
    refused = {name: entry.guards["any"] / entry.cases for name, entry in counted.items()}
    unfaithful = refused.pop(UNFAITHFUL)
    most = max(refused.values())
    met = false / rows <= MOST_ALARMS and most < MOST_REFUSED
    report("guard", false / rows, MOST_ALARMS, met, rows=rows, false=false, caught=share,
           refused=most, unfaithful=unfaithful)  # fmt: skip


def print_people(counted: Mapping[str, Refusals]) -> None:
    """One line for each collection; where the corpora are not named, only our cases are counted."""
    table = Table(
        "people's rewrites", "count", "guard", "of it: history", "number", "reward: floor", "number", title="refused"
    )
    for name, entry in counted.items():
        counts = [entry.guards["any"], entry.guards["history"], entry.guards["invented_number"],
                  entry.reward["floor"], entry.reward["numbers"]]  # fmt: skip
        shares = (f"{count} ({count / entry.cases:.2%})" if count else "0" for count in counts)
        table.add_row(name, f"{entry.cases:,}", *shares)
    Console(file=sys.stdout, width=WIDTH).print(table)


def print_samples(figures: Mapping[str, Alarms]) -> None:
    table = Table("", *figures, title="the samples' rewrites: taken back")
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


if __name__ == "__main__":
    main()
