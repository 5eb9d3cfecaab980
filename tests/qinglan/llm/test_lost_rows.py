"""Lost rows are counted by cause, and each cause names what helps."""

from pathlib import Path

import pytest

from qinglan.files.files import dump_line
from qinglan.llm.lost_rows import Loss, causes_in_words, loss_lines, lost_share, read_losses, remedy
from qinglan.rows.rows import QuarantinedRow

REMEDIES = [
    ("generate", "truncated", "gateway.teacher.max_output_tokens"),
    ("validate", "truncated", "gateway.judge.max_output_tokens"),
    ("validate", "too long", "validate.need_prompt"),
    ("generate", "timeout", "gateway.limits.timeout_seconds"),
    ("generate", "unreadable", "gateway.teacher.base_url"),
    ("generate", "{a reason} that nobody knows", "gateway.limits.attempts"),
]


@pytest.mark.parametrize(("stage", "reason", "words"), REMEDIES)
def test_each_cause_names_the_setting_that_helps(stage: str, reason: str, words: str) -> None:
    assert words in remedy(stage, reason)


def test_rows_that_are_no_questions_are_not_lost(tmp_path: Path) -> None:
    stages = ["generate"] * 3 + ["read"]
    reasons = ["truncated", "refused", "truncated", "empty"]
    rows = [
        QuarantinedRow(id=f"r{n}", tenant_id="t", where="row", stage=stage, reason=reason, detail="")
        for n, (stage, reason) in enumerate(zip(stages, reasons, strict=True))
    ]
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"".join(map(dump_line, rows)))

    losses = read_losses(path, "generate")
    assert losses == [Loss("truncated", 2), Loss("refused", 1)]
    assert causes_in_words(losses) == "2 truncated + 1 refused"


@pytest.mark.parametrize(
    ("losses", "says"),
    [
        ([Loss("status 503", 3), Loss("empty", 1)], "The same command asks for these rows only;"),
        ([Loss("truncated", 97)], "so the same command asks for none of them;"),
        ([Loss("truncated", 97), Loss("refused", 3)], "so the same command asks for the other 3 only;"),
    ],
)
def test_the_rows_that_are_asked_for_again_are_named(losses: list[Loss], says: str) -> None:
    assert says in loss_lines("generate", losses, 300)[0]


@pytest.mark.parametrize(
    ("lost", "answered", "share", "begins"),
    [
        (0, 10, 0.0, None),
        (1, 19, 0.05, "generate: 1 of 20 rows are lost (5.0%)"),
        (2, 18, 0.1, "! generate: 2 of 20 rows are lost (10.0%)"),
        (10, 0, 1.0, "! generate: 10 of 10"),
    ],
)
def test_above_five_percent_it_is_a_warning(lost: int, answered: int, share: float, begins: str | None) -> None:
    losses = [Loss("truncated", lost)] if lost else []

    assert lost_share(losses, answered) == share
    lines = loss_lines("generate", losses, answered)
    assert len(lines) == (2 if begins else 0)
    if begins:
        assert lines[0].startswith(begins)
        assert lines[1] == f"  {lost} as truncated. To do: raise gateway.teacher.max_output_tokens."
