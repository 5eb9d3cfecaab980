"""Compare the signed lists of a run's paid answers with its journal, in both directions.

    findings = check_journals(evidence, statements)

A list names each call by the digest of its request, and each answer by its own digest. Each listed answer must be in
the journal unchanged. Each answer in the journal must belong to its request, and that request must have been sent. If
a list is missing, the journal must still produce the list that the step signed.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from qinglan.documents import parse_json_mapping
from qinglan.errors import DataError
from qinglan.files.files import sha256_bytes
from qinglan.files.plain_files import open_plain
from qinglan.lineage.signing.findings import WORST_FIRST, Finding
from qinglan.lineage.signing.statement import Statement
from qinglan.lineage.trace.evidence import Evidence
from qinglan.llm.paid.journal_reader import JournalAnswer, paid_answers_jsonl, read_answers

PAID_ANSWERS_PATTERN = "paid-*.jsonl"
JOURNAL = "journal"
"""Name under which a statement lists the file of paid answers among its inputs."""

MAX_NAMED_ANSWERS = 20
"""Largest number of faulty answers that an audit names one by one; more are only counted."""

COST_TOLERANCE = 1e-9
"""Largest difference between two costs that counts as rounding, in the currency of the prices."""


def check_journals(evidence: Evidence, statements: Iterable[Statement]) -> Iterator[Finding]:
    """Compare every list of paid answers in the evidence with every journal in the evidence."""
    papers = paid_lists(evidence)
    signed = {part.digest: item for item in statements for part in item.used if part.name == JOURNAL}
    for journal in evidence.journals():
        try:
            answers = {answer.call: answer for answer in read_answers(journal)}
            unlisted = [item for digest, item in signed.items() if digest not in papers]
            # The journal may still produce the list that the step signed.
            again = {item.stage: sha256_bytes(paid_answers_jsonl(journal, item.stage)) for item in unlisted}
            lost = [item.stage for item in unlisted if again[item.stage] not in {part.digest for part in item.used}]
        except (DataError, sqlite3.DatabaseError) as error:
            yield Finding(journal.name, "altered", str(error))
            continue
        yield from capped(_journal_faults(answers.values()), journal.name)
        for path in sorted(papers.values()):
            with open_plain(path) as lines:
                yield from capped(compare_answers(path.name, lines, answers), path.name)
        for stage in sorted(lost):
            why = f"{stage} signed a list of paid answers; it is gone, and {journal.name} gives another"
            yield Finding(f"paid answers of {stage}", "missing", why)


def paid_lists(evidence: Evidence) -> dict[str, Path]:
    """Return the lists of paid answers in the evidence, by digest."""
    return {digest: path for path, digest in evidence.papers() if path.match(PAID_ANSWERS_PATTERN)}


def read_costs(paid_list: Path) -> dict[str, float] | None:
    """Return the cost of each call in a list of paid answers; None if the file is not such a list."""
    with open_plain(paid_list) as lines:
        try:
            rows = [parse_json_mapping(line, paid_list.name) for line in lines]
            return {str(row["call"]): float(row["cost"] or 0) for row in rows}
        except (DataError, KeyError, TypeError, ValueError):
            return None


def _journal_faults(answers: Iterable[JournalAnswer]) -> Iterator[Finding]:
    for answer in answers:
        what = f"answer {answer.call[:12]}"
        if answer.fault:
            yield Finding(what, "altered", answer.fault)
        elif not answer.sent:
            yield Finding(what, "altered", "the journal holds it, and no request for it was ever sent")


def compare_answers(paper: str, lines: Iterable[bytes], answers: Mapping[str, JournalAnswer]) -> Iterator[Finding]:
    """Yield a finding for each listed answer that the journal lacks or holds differently; `answers` are by call."""
    for number, line in enumerate(lines, 1):
        try:
            row = parse_json_mapping(line, paper)
            call, digest, model, cost = str(row["call"]), row["answer"], row.get("model"), row.get("cost")
        except (DataError, KeyError):
            yield Finding(f"{paper}:{number}", "altered", "not a line of paid answers")
            continue
        what, answer = f"answer {call[:12]}", answers.get(call)
        if answer is None:
            yield Finding(what, "missing", f"{paper} names it; the journal lacks it")
        elif answer.digest != digest:
            why = f"the journal's answer to {call} has digest {answer.digest[:12]}, {paper} says {str(digest)[:12]}"
            yield Finding(what, "altered", why)
        elif model != answer.model:
            yield Finding(what, "altered", f"the journal says that {answer.model} gave it, and {paper} says {model}")
        elif answer.cost is not None and not (
            isinstance(cost, (int, float)) and abs(cost - answer.cost) <= COST_TOLERANCE
        ):
            yield Finding(what, "altered", f"the journal says that it cost {answer.cost}, and {paper} says {cost}")


def capped(findings: Iterable[Finding], source: str) -> Iterator[Finding]:
    """Yield the worst findings one by one, then one finding that counts the rest."""
    faults = sorted(findings, key=lambda fault: WORST_FIRST.index(fault.state))
    yield from faults[:MAX_NAMED_ANSWERS]
    if rest := faults[MAX_NAMED_ANSWERS:]:
        yield Finding(f"{len(rest)} more answers of {source}", rest[0].state, "as those above")
