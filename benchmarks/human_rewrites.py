"""Rewrites as people write them, with the conversation they were written for: our own cases, and public corpora.

Ours lie in guard_cases/: faithful ones full of numbers, units, dates, names and clauses, and unfaithful ones. The
corpora are not ours to ship; whoever has a copy names its file: CANARD's JSON (Elgohary et al. 2019), a topic file of
TREC CAsT 2020 to 2022 with manual rewrites, or the corpus of REWRITE (Su et al. 2019), four columns between tabs.
"""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

CASES = Path(__file__).parent / "guard_cases"


class Case(NamedTuple):
    """A question, what was said before, and a rewrite; `fault` is empty where it is faithful."""

    question: str
    history_summary: str
    rewrite: str
    fault: str = ""
    user_profile: str = ""
    tenant_id: str = "people"


def own_cases() -> dict[str, list[Case]]:
    """Our cases by name: faithful ones by language, and unfaithful ones."""
    return {path.stem: [_own_case(row) for row in _rows(path)] for path in sorted(CASES.glob("*.tsv"))}


def corpus(path: Path) -> list[Case]:
    """The cases of a public corpus, by what its file looks like."""
    if path.suffix != ".json":
        return list(_dialogues(path))
    records: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    if "Rewrite" in records[0]:
        return [Case(record["Question"], " ".join(record["History"]), record["Rewrite"]) for record in records]
    return [case for record in records for case in _topic(record["turn"])]


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def _own_case(row: dict[str, str]) -> Case:
    return Case(row["question"], row["history"], row["rewrite"], row.get("fault", ""))


def _dialogues(path: Path) -> Iterator[Case]:
    for line in path.read_text(encoding="utf-8").splitlines():
        columns = [column for column in line.split("\t") if column]
        if len(columns) == 4:
            first, answer, question, rewrite = columns
            yield Case(question, f"用户：{first} 助手：{answer}", rewrite)


def _topic(turns: list[dict[str, Any]]) -> Iterator[Case]:
    history: list[str] = []
    for turn in turns:
        question = turn.get("raw_utterance") or turn.get("utterance") or ""
        if rewrite := turn.get("manual_rewritten_utterance"):
            yield Case(question, " ".join(history), rewrite)
        history += [question, turn.get("passage") or turn.get("response") or ""]
