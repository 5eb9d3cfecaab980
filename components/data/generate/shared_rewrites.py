"""Find rewrites that many different questions share, such as a refusal, or the same text for every question.

shared = SharedRewrites()
shared.add(question, rewrite)
shared.questions()    # number of questions whose rewrite many other questions have too
"""

from collections import Counter, defaultdict
from pathlib import Path

from qinglan.files.files import read_jsonl
from qinglan.llm.lost_rows import WARN_SHARE
from qinglan.rows.rows import Rewrite

MANY_QUESTIONS = 5
"""Smallest number of different questions with which a rewrite counts as shared. Fewer questions with the same rewrite
may simply ask the same thing."""

QUOTED_CHARACTERS = 80


class SharedRewrites:
    """Count the different questions of each rewrite. Only hashes are stored, since a sheet's texts may be large."""

    def __init__(self) -> None:
        self._questions: dict[int, set[int]] = defaultdict(set)

    def add(self, question: str, rewrite: str) -> None:
        self._questions[hash(_alike(rewrite))].add(hash(_alike(question)))

    def questions(self) -> int:
        return sum(len(questions) for questions in self._questions.values() if len(questions) >= MANY_QUESTIONS)


def shared_line(shared: int, rewritten: int, rewrites: Path) -> str:
    if not rewritten or shared / rewritten <= WARN_SHARE:
        return ""
    [(text, times)] = Counter(row.rewritten_query for _, row in read_jsonl(rewrites, Rewrite)).most_common(1)
    return (
        f"! generate: {shared:,} of {rewritten:,} questions have a rewrite that {MANY_QUESTIONS} or more questions "
        f"got; the most frequent, {times:,} times: {text[:QUOTED_CHARACTERS]!r}. If it declines, add its beginning "
        "to gateway.teacher.refusal_patterns; else see generate.system_prompt."
    )


def _alike(text: str) -> str:
    return " ".join(text.lower().split())
