"""A rehearsal of several files goes on after the failure of one, and after its own end in a step."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.execute.execution import StepFailed
from pipelines.execute.interrupts import INTERRUPTED
from qinglan.errors import OutageError
from tests.rehearsal import __main__ as rehearsal
from tests.rehearsal.progress import StepTime, begin_folder

SERVED = "10 of 10 served rewrites read as the evaluation's"


class Steps:
    """Steps of a file that does nothing; `errors` has those that fail, by file and step."""

    def __init__(self, errors: dict[tuple[str, str], Exception]) -> None:
        self.errors = errors
        self.ran: list[tuple[str, str]] = []

    def __call__(self, profile: str, folder: Path, options: Any, done: list[str], earlier: Any) -> Iterator[StepTime]:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("sft", "ppo", "serve"):
            if name not in done:
                self.ran.append((profile, name))
                if error := self.errors.get((profile, name)):
                    raise error
                yield StepTime(profile, name, "cpu", 2.0, SERVED if name == "serve" else "")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Steps]:
    def run_main(code: int, errors: dict[tuple[str, str], Exception]) -> Steps:
        steps = Steps(errors)
        monkeypatch.setattr(rehearsal, "begin", steps)
        with pytest.raises(SystemExit) as ended:
            rehearsal.main(["a100x4", "one-gpu-24", "style-cpu", "--out", str(tmp_path)])
        assert ended.value.code == code
        return steps

    return run_main


def test_a_failure_does_not_end_the_other_files_and_the_result_of_each_is_printed(
    run: Callable[..., Steps], capsys: pytest.CaptureFixture[str]
) -> None:
    run(1, {("a100x4", "ppo"): OutageError("no answer", "ask again"), ("one-gpu-24", "serve"): ZeroDivisionError()})

    *_, first, second, third, steps = capsys.readouterr().out.splitlines()
    assert first == "a100x4: failed after sft: no answer"
    assert second == "one-gpu-24: failed after ppo: ZeroDivisionError"
    assert third == f"style-cpu: serve reached, 6 s; {SERVED}"
    assert [(step["profile"], step["stage"]) for step in json.loads(steps)] == [
        ("a100x4", "sft"), ("one-gpu-24", "sft"), ("one-gpu-24", "ppo"),
        ("style-cpu", "sft"), ("style-cpu", "ppo"), ("style-cpu", "serve"),
    ]  # fmt: skip


def test_the_same_command_goes_on_after_the_last_step_done_and_begins_anew_after_its_end(
    run: Callable[..., Steps], capsys: pytest.CaptureFixture[str]
) -> None:
    run(1, {("one-gpu-24", "ppo"): OutageError("no answer")})

    second = run(0, {})

    assert second.ran == [("one-gpu-24", "ppo"), ("one-gpu-24", "serve")]
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])) == 9, (
        "the times of the first command's steps too"
    )
    assert len(run(0, {}).ran) == 9


def test_the_users_stop_ends_the_command(run: Callable[..., Steps]) -> None:
    steps = run(INTERRUPTED, {("a100x4", "sft"): StepFailed("Stopped", exit_code=INTERRUPTED)})

    assert steps.ran == [("a100x4", "sft")]


def test_a_folder_without_a_step_done_is_emptied(tmp_path: Path) -> None:
    (folder := tmp_path / "a100x4").mkdir()
    (folder / "half written").touch()

    assert begin_folder(folder) == ()
    assert not folder.exists()
