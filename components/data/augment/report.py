"""Count the teacher's further rows, and write the counts as lines for a log and a run's summary."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KINDS = {"hindsight": "rewrites in hindsight", "pseudo": "questions from passages"}


@dataclass
class Tally:
    """Counts of the teacher's answers of one kind (one of KINDS)."""

    answers: int = 0
    useful: int = 0
    not_asked: int = 0
    """Cases that were not paid for, since too few of the first answers could be used."""

    dropped: Counter[str] = field(default_factory=Counter)
    """Unusable answers, by reason."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "answers": self.answers, "useful": self.useful, "not_asked": self.not_asked,
            "dropped": dict(self.dropped.most_common()),
        }  # fmt: skip


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """Return a line for each kind with the number of useful answers and the reasons why others were dropped. A kind
    without answers gets no line."""
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
    """Format the counts by reason. Reasons are spelled as in augment_left_out.jsonl, so that readers find the
    rows."""
    words = (f"{reason} {count:,}" for reason, count in counts.items())
    return f"; {', '.join(words)}" if counts else ""
