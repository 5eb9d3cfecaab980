"""Paid answers, compared with the journal that holds them: `paid-<stage>.jsonl` names each by its digest."""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import orjson

from qinglan.errors import DataError
from qinglan.lineage.evidence_source import Evidence
from qinglan.lineage.findings import Finding
from qinglan.llm.journal_reader import read_answers

PAID_ANSWERS_PATTERN = "paid-*.jsonl"
SHOWN = 20
"""So many are named one by one; the rest are counted."""


def compare_answers(paper: str, lines: Iterable[bytes], answers: Mapping[str, str]) -> Iterator[Finding]:
    """Each call of the paper whose answer the journal has otherwise, or not at all; by the call's key."""
    faults = []
    for number, line in enumerate(lines, 1):
        try:
            row = orjson.loads(line)
            call, answer = str(row["call"]), row["answer"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            faults.append(Finding(f"{paper}:{number}", "altered", "no line of paid answers"))
            continue
        if call not in answers:
            faults.append(Finding(f"answer {call[:12]}", "missing", f"{paper} names it; the journal lacks it"))
        elif answers[call] != answer:
            why = f"the journal's answer to {call} has digest {answers[call][:12]}, {paper} says {str(answer)[:12]}"
            faults.append(Finding(f"answer {call[:12]}", "altered", why))
    faults.sort(key=lambda one: one.state)  # altered before missing
    yield from faults[:SHOWN]
    if more := faults[SHOWN:]:
        yield Finding(f"{len(more)} more answers of {paper}", more[0].state, "as those above")


def check_journals(evidence: Evidence) -> Iterator[Finding]:
    """Every paper at hand against every journal at hand."""
    journals = evidence.journals()
    papers = {digest: path for path, digest in evidence.papers() if path.match(PAID_ANSWERS_PATTERN)}
    for journal in journals if papers else ():
        try:
            answers = {key: hashlib.sha256(response).hexdigest() for key, response in read_answers(journal)}
        except (DataError, sqlite3.DatabaseError) as error:
            yield Finding(journal.name, "altered", str(error))
            continue
        for path in sorted(papers.values()):
            yield from compare_answers(path.name, _lines(path), answers)


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file
