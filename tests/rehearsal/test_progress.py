"""A rehearsal of several files goes on after the failure of one; the user's stop ends it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.execute.execution import StepFailed
from pipelines.execute.interrupts import INTERRUPTED
from qinglan.errors import OutageError
from tests.rehearsal import __main__ as rehearsal
from tests.rehearsal.progress import StepTime


@pytest.mark.parametrize(
    ("error", "code", "results"),
    [
        (OutageError("no answer"), 1, ["a100x4: failed after sft: no answer", "one-gpu-24: ppo reached, 4 s"]),
        (ZeroDivisionError(), 1, ["a100x4: failed after sft: ZeroDivisionError", "one-gpu-24: ppo reached, 4 s"]),
        (StepFailed("Stopped", exit_code=INTERRUPTED), INTERRUPTED, []),
    ],
)
def test_a_failure_does_not_end_the_other_files_and_the_users_stop_does(
    error: Exception,
    code: int,
    results: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def begin(profile: str, folder: Path, options: Any) -> Iterator[StepTime]:
        yield StepTime(profile, "sft", "cpu", 2.0)
        if profile == "a100x4":
            raise error
        yield StepTime(profile, "ppo", "cpu", 2.0)

    monkeypatch.setattr(rehearsal, "begin", begin)
    with pytest.raises(SystemExit) as ended:
        rehearsal.main(["a100x4", "one-gpu-24", "--out", str(tmp_path)])

    assert ended.value.code == code
    if results:
        *_, first, second, steps = capsys.readouterr().out.splitlines()
        assert [first, second] == results
        assert [(step["profile"], step["stage"]) for step in json.loads(steps)] == [
            ("a100x4", "sft"), ("one-gpu-24", "sft"), ("one-gpu-24", "ppo"),
        ]  # fmt: skip
