"""Count the teacher's further rows, and write the counts as lines for a log and a run's summary."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qinglan.terminal import in_language, listed

KINDS = {"hindsight": "rewrites in hindsight", "pseudo": "questions from passages"}

REASONS = {
    "same_as_before": "the same as before",
    "not_better": "no better than before",
    "not_found": "not finding the passage first",
    "copied": "copies of the passage",
    "nothing_to_ask": "nothing to ask",
    "like_dev_or_test": "like a question of dev or test",
    "repeated": "written twice",
    "malformed": "not in the form asked for",
    "refused": "refused by the model",
    "truncated": "cut at the model's limit",
    "empty": "empty answers",
    "too_long": "too long to search",
    "markup": "with markup",
    "history": "copies of the history",
    "invented_number": "with invented numbers",
    "hindsight_calls": "rows beyond augment.hindsight_calls",
    "passage_not_in_knowledge_base": "rows whose passage is not in the knowledge base",
    "passage_like_dev_or_test": "passages like one of dev or test",
}
"""Words for the reasons in augment_left_out.jsonl; other reasons are shown as they are."""


@dataclass
class Tally:
    """Answers of one kind."""

    answers: int = 0
    useful: int = 0
    not_asked: int = 0
    """Cases that were not paid for, since too few of the first answers could be used."""

    dropped: Counter[str] = field(default_factory=Counter)
    """Unusable answers, by reason."""

    def as_dict(self) -> dict[str, Any]:
        """Return the tally as plain data, with the most frequent reason first."""
        return {
            "answers": self.answers, "useful": self.useful, "not_asked": self.not_asked,
            "dropped": dict(self.dropped.most_common()),
        }  # fmt: skip


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """Return lines on the useful answers of each kind and the reasons of the rest; none without answers."""
    lines: list[str] = []
    for kind, about in KINDS.items():
        tally = report.get(kind, {})
        if not tally.get("answers"):
            continue
        lines.append(f"{about}: {tally['useful']:,} of {tally['answers']:,} answers kept{_reasons(tally['dropped'])}")
        if tally["not_asked"]:
            lines.append(
                f"warn: {tally['not_asked']:,} more {about} were not paid for: too few of the first could be used. "
                "Is the teacher fit for it? Look at augment_left_out, or name another gateway.teacher"
            )
    if left_out := report.get("left_out"):
        lines.append(f"not asked about{_reasons(left_out)}")
    return lines


def _reasons(counts: Mapping[str, int]) -> str:
    words = (f"{in_language(REASONS.get(reason, reason))} {count:,}" for reason, count in counts.items())
    return f"; {listed(words)}" if counts else ""
