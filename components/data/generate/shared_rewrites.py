"""Rewrites that many different questions share: the teacher declines in words, or writes one text for all.

shared = SharedRewrites()
shared.add(question, rewrite)
shared.questions()    # questions whose rewrite is that of many others
"""

from collections import Counter, defaultdict
from pathlib import Path

from qinglan.files.files import read_jsonl
from qinglan.llm.lost_rows import WARN_SHARE
from qinglan.rows.rows import Rewrite

MANY_QUESTIONS = 5
"""Different questions with one rewrite from which the rewrite counts as shared: fewer may ask for the same thing."""

QUOTED_CHARACTERS = 80


class SharedRewrites:
    """Counts the different questions of each rewrite. It holds hashes, since the texts of a sheet may be large."""

    def __init__(self) -> None:
        self._questions: dict[int, set[int]] = defaultdict(set)

    def add(self, question: str, rewrite: str) -> None:
        self._questions[hash(_alike(rewrite))].add(hash(_alike(question)))

    def questions(self) -> int:
        """Different questions that share their rewrite with many others."""
        return sum(len(questions) for questions in self._questions.values() if len(questions) >= MANY_QUESTIONS)


def shared_line(shared: int, rewritten: int, rewrites: Path) -> str:
    """A warning if many questions share their rewrite, with the most frequent one; else empty."""
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
