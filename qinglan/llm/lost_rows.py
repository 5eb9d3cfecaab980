"""Counts the rows that a stage lost because a paid model gave no usable answer, and names a remedy for each cause.

losses = read_losses(quarantine, "generate")    # [Loss("truncated", 97), Loss("refused", 3)]
loss_lines("generate", losses, answered=382)    # lines for people
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from qinglan.files.files import read_jsonl
from qinglan.llm.config import Role
from qinglan.rows.rows import QuarantinedRow

CUT = "truncated"
WARN_SHARE = 0.05
"""Share of a stage's rows that are lost, above which a run warns."""

PROMPTS: Mapping[str, str] = {"generate": "generate.system_prompt", "validate": "validate.need_prompt"}
ROLES: Mapping[str, Role] = {"generate": "teacher", "validate": "judge"}
"""Role of the model whose answer a row needs, by stage."""


class Loss(NamedTuple):
    """Number of rows that were lost for one reason."""

    reason: str
    rows: int


def read_losses(quarantine: Path, stage: str) -> list[Loss]:
    """Count a stage's lost rows by reason, the most frequent reason first. Rows that were set aside when the sheet
    was read do not count."""
    reasons = Counter(row.reason for _, row in read_jsonl(quarantine, QuarantinedRow) if row.stage == stage)
    return [Loss(*item) for item in reasons.most_common()]


def lost_share(losses: Sequence[Loss], answered: int) -> float:
    lost = sum(loss.rows for loss in losses)
    return lost / (lost + answered) if lost else 0.0


def cut_rows(losses: Sequence[Loss]) -> int:
    """Count the rows whose answer was cut. They are requested again only under a higher limit."""
    return sum(loss.rows for loss in losses if loss.reason == CUT)


def limit_setting(stage: str) -> str:
    """Return the name of the setting that limits the length of a stage's answers."""
    return f"gateway.{ROLES[stage]}.max_output_tokens"


def asks_again(losses: Sequence[Loss]) -> str:
    """Write the sentence that says which lost rows the same command would request again."""
    if not (cut := cut_rows(losses)):
        return "The same command asks for these rows only; complete answers are not paid for again."
    again = sum(loss.rows for loss in losses) - cut
    remark = (
        f"the same command asks for the other {again:,} only" if again else "the same command asks for none of them"
    )
    return f"Under this limit cut answers would be cut again, so {remark}; complete answers are not paid for again."


def causes_in_words(losses: Sequence[Loss]) -> str:
    """Summarize losses, such as `97 truncated + 3 refused`."""
    return " + ".join(f"{loss.rows:,} {loss.reason}" for loss in losses)


def remedy(stage: str, reason: str) -> str:
    """Name the setting or action by which rows lost for this reason get an answer.

    Reasons that are not listed (connection, status 503 ...) are treated as temporary failures of the service.
    """
    model = f"gateway.{ROLES[stage]}"
    no_completion = f"check {model}.base_url: the answer is no completion"
    remedies = {
        CUT: f"raise {limit_setting(stage)}",
        "empty": f"raise {model}.max_output_tokens, or lower {model}.reasoning_effort: a model that thinks may use "
        "up its tokens before it answers",
        "refused": f"run again, or take another model in {model}",
        "too long": f"ask for one short query in {PROMPTS[stage]}",
        "malformed": f"take another model in {model}, or another {model}.answer_format",
        "rejected": f"read the provider's reason in the file: too long a row, or a field of {model} that the "
        "provider does not take",
        "too large": "shorten the row's history",
        "timeout": "raise gateway.limits.timeout_seconds",
        "no choices": no_completion,
        "unreadable": no_completion,
    }
    passing = "run again; if it stays, raise gateway.limits.attempts, or lower gateway.limits.concurrency"
    return remedies.get(reason, passing)


def loss_lines(stage: str, losses: Sequence[Loss], answered: int) -> list[str]:
    """Write lines about a stage's lost rows, with a warning mark if many rows are lost; an empty list if no row is
    lost."""
    share = lost_share(losses, answered)
    if not losses:
        return []
    lost = sum(loss.rows for loss in losses)
    name = f"! {stage}" if share > WARN_SHARE else stage
    return [
        f"{name}: {lost:,} of {lost + answered:,} rows are lost ({share:.1%}). {asks_again(losses)}",
        *(f"  {loss.rows:,} as {loss.reason}. To do: {remedy(stage, loss.reason)}." for loss in losses),
    ]
