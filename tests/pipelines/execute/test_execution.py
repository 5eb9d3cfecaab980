"""The error of a run that stopped names its step, its log, and once the way on; its child is ended in any case."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from commands.run.end_screen import answered_calls, journal_share
from pipelines.execute import execution
from pipelines.execute.execution import run_lock, step_failure
from pipelines.execute.local_execution import LocalJob
from pipelines.execute.rundir import RunDir, write_json
from pipelines.lines.rewriter import REWRITER
from qinglan.errors import GateHeldError, TrainingError
from qinglan.lineage.steps.record import RECORDS_VARIABLE, recorded
from serving.gateway.paid_calls import RUN_AGAIN
from tests.releases.kfp_artifacts import File

TIMES = {"started": "2026-01-01T00:00:00.000+00:00", "ended": "2026-01-01T00:00:02.500+00:00"}
DONE: dict[str, Any] = {"status": "done", **TIMES, "facts": {}}


@pytest.mark.parametrize(
    ("message", "begins"),
    [
        (f"teacher at h: ConnectError. {RUN_AGAIN}", (f"generate: teacher at h: ConnectError. {RUN_AGAIN}",)),
        ("generate: the teacher is away.", ("generate: the teacher is away.",)),
        ("generate: one\ntwo", ("generate:", "  | one", "  | two")),
    ],
)
def test_a_failed_step_is_named_once_with_one_way_on(tmp_path: Path, message: str, begins: tuple[str, ...]) -> None:
    run, log = RunDir(tmp_path), tmp_path / "run.log"
    run.records.mkdir(parents=True)
    failure = {"message": message, "explained": True, "exit_code": 4}
    write_json(run.records / "generate.json", {"status": "failed", "failure": failure})

    error = step_failure(run, REWRITER, ("generate",), log)

    assert error.lines[: len(begins)] == begins and f"Log: {log}" in error.lines
    assert str(error).count("Run the same command again") == 1
    assert error.exit_code == 4


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (GateHeldError("The teacher is worse than no rewrite."), ["validated.xlsx"]),
        (TrainingError("half of it is written"), []),
        (KeyboardInterrupt(), []),
        (None, ["validated.jsonl", "validated.xlsx"]),
    ],
)
def test_of_a_stage_that_its_own_verdict_stopped_people_can_read_the_sheet_and_no_stage_takes_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException | None, shown: list[str]
) -> None:
    run, created = RunDir(tmp_path), tmp_path / "artifacts" / "validate"
    for folder in (created, run.records, run.files):
        folder.mkdir(parents=True)
    monkeypatch.setenv(RECORDS_VARIABLE, str(run.records))
    outputs = {name: File(str(created / name)) for name in ("validated", "validated_table", "validate_quarantine")}
    with suppress(BaseException), recorded("validate", {}, outputs, {}, File(str(created / "lineage"))):
        for name, output in outputs.items():
            if name != "validate_quarantine" or not error:
                Path(output.path).write_text(name)
        if error:
            raise error

    execution.link_files(run, {}, ("validate",))

    assert sorted(path.name for path in run.files.glob("validated.*")) == shown
    if shown and error:
        assert run.shown("validated_table").read_text() == "validated_table"
        failed = step_failure(run, REWRITER, ("validate",), tmp_path / "run.log")
        assert f"To read: {run.shown('validated_table')}" in failed.lines


def test_a_call_that_was_refused_is_no_paid_call() -> None:
    step = {"step": "generate", "role": "teacher", "attempts": 5, "answered": 3, "hits": 0, "cost": 0.1}

    assert answered_calls({"attempts": 5, "by_step": [step]}) == 3
    assert answered_calls({}) == 0


def test_a_resumed_run_that_pays_nothing_took_every_answer_from_the_journal() -> None:
    """The journal's own rate is of all runs: after a first run without hits it would say 50 %."""
    assert journal_share({"hits": 40}, {"hits": 0}, paid=0) == "40 (100%)"
    assert journal_share({"hits": 40}, {"hits": 30}, paid=30) == "10 (25%)"
    assert journal_share({"hits": 0}, {}, paid=0) == "0"


def test_records_name_the_inputs_for_an_audit_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named as they were typed, they were altered for an audit that was called in another folder."""
    jobs: list[LocalJob] = []
    monkeypatch.setattr(execution, "write_job", lambda run, job: jobs.append(job))
    monkeypatch.setattr(execution, "execute", lambda *arguments, **options: None)
    monkeypatch.chdir(tmp_path)
    Path("q.jsonl").touch()

    execution.run_stages(
        REWRITER, RunDir(tmp_path / "run"), ("generate",), {"questions": Path("q.jsonl")}, False, True
    )

    assert [job.inputs for job in jobs] == [{"questions": str(tmp_path / "q.jsonl")}]


def test_a_run_that_is_killed_has_said_that_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, records, states = RunDir(tmp_path / "run"), list[dict[str, Any]](), list[str]()

    def killed(*_: object, **__: object) -> None:
        records.append(json.loads(run.record.read_bytes()))
        states.append(execution.state_in_words(run))
        with run_lock(run):
            states.append(execution.state_in_words(run))
        raise TrainingError("the step ended")

    monkeypatch.setattr(execution, "write_job", lambda run, job: None)
    monkeypatch.setattr(execution, "execute", killed)
    with run_lock(run):
        pass
    with pytest.raises(TrainingError):
        execution.run_stages(REWRITER, run, ("generate",), {}, False, True)

    assert [(record["status"], record["ran"]) for record in records] == [("running", ["generate"])]
    assert "killed" in states[0] and "under way" in states[1]
    assert json.loads(run.record.read_bytes())["status"] == "failed"


DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"


@pytest.mark.parametrize(("code", "ended"), [(DEAF, -signal.SIGKILL), ("print('on')", 0)])
def test_a_child_that_does_not_end_or_has_ended_keeps_nobody_waiting(
    code: str, ended: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "STEP_ENDS_SECONDS", 0.2)
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"on\n"
        if code != DEAF:
            child.wait(60)

        assert execution._stop(child, RunDir(tmp_path), ()) == ""

    assert child.returncode == ended


WAITS = """
import pathlib, sys, time
until = time.monotonic() + 60
while not pathlib.Path(sys.argv[1]).exists():
    assert time.monotonic() < until
    time.sleep(0.05)
"""


def test_files_of_a_stage_are_shown_when_it_ends_and_not_when_the_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`qinglan headroom` found no SFT model while PPO ran: it lay in artifacts alone."""
    run, observed = RunDir(tmp_path), tmp_path / "seen"
    for folder in (run.records, run.logs):
        folder.mkdir()
    model = tmp_path / "artifacts" / "sft" / "sft_model"
    model.mkdir(parents=True)
    write_json(run.records / "sft.json", {**DONE, "outputs": {"sft_model": {"uri": str(model)}}})

    def child(*_: object) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-c", WAITS, str(observed)], start_new_session=True)

    def show(stages: Sequence[str]) -> None:
        execution.link_files(run, {}, stages)
        observed.touch()

    monkeypatch.setattr(execution, "_start_child", child)
    execution.execute(run, REWRITER, ("sft", "ppo"), quiet=True, show=show)

    assert run.shown("sft_model").resolve() == model
