"""A command on this machine."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qinglan.errors import ConfigError, OutageError
from qinglan.jobs import Command, JobSpec, LocalRunner, Outcome

SLEEPS = [sys.executable, "-c", "import time; print('on', flush=True); time.sleep(600)"]


def spec(*argv: str, hours: float = 1.0, **environment: str) -> JobSpec:
    return JobSpec("sft", Command([sys.executable, "-c", *argv], environment), hours=hours)


def test_the_output_is_kept_and_heard(tmp_path: Path) -> None:
    heard: list[str] = []
    code = "import os; print(os.environ['WHO']); print('二')"

    outcome = LocalRunner().run(spec(code, WHO="me"), tmp_path / "log" / "train.log", heard.append)

    assert outcome == Outcome(0)
    assert heard == ["me", "二"]
    assert (tmp_path / "log" / "train.log").read_text() == "me\n二\n"


def test_a_failure_is_its_code(tmp_path: Path) -> None:
    assert LocalRunner().run(spec("raise SystemExit(3)"), tmp_path / "log") == Outcome(3)


def test_more_machines_than_one_are_not_here(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2 machines, and this is one"):
        LocalRunner().run(spec("")._replace(nodes=2), tmp_path / "log")


def test_told_to_stop_it_stops(tmp_path: Path) -> None:
    heard: list[str] = []

    outcome = LocalRunner().run(
        JobSpec("sft", Command(SLEEPS)), tmp_path / "log", heard.append, stop=lambda: bool(heard)
    )

    assert outcome.code == -signal.SIGTERM


def test_a_command_over_its_time_limit_is_ended_and_reported(tmp_path: Path) -> None:
    outcome = LocalRunner().run(JobSpec("sft", Command(SLEEPS), hours=0.0001), tmp_path / "log")

    assert outcome == Outcome(-signal.SIGTERM, "it took longer than its 0.0001 hours")


def test_an_error_of_the_listener_ends_the_command(tmp_path: Path) -> None:
    def refuse(line: str) -> None:
        raise ValueError(line)

    with pytest.raises(ValueError, match="on"):
        LocalRunner().run(JobSpec("sft", Command(SLEEPS)), tmp_path / "log", refuse)


def test_a_command_whose_log_cannot_be_written_does_not_succeed(tmp_path: Path) -> None:
    with pytest.raises(OutageError, match="the log cannot be written") as failure:
        LocalRunner().run(JobSpec("sft", Command(SLEEPS)), tmp_path)

    assert isinstance(failure.value.__cause__, IsADirectoryError)


@pytest.mark.slow
def test_sigterm_ends_what_was_started_and_what_that_started(tmp_path: Path) -> None:
    # One write a line: print would write the line's end by itself, and the other's number might come between.
    program = (
        "import sys; from pathlib import Path; from qinglan.jobs import *\n"
        "code = 'import os, time; os.fork(); os.write(1, b\"%d\\\\n\" % os.getpid()); time.sleep(600)'\n"
        "LocalRunner().run(JobSpec('sft', Command([sys.executable, '-c', code])), Path(sys.argv[1]))"
    )
    log = tmp_path / "log"
    step = subprocess.Popen([sys.executable, "-c", program, str(log)])
    end = time.monotonic() + 60
    while time.monotonic() < end and not (log.is_file() and log.read_text().count("\n") == 2):
        time.sleep(0.05)

    step.send_signal(signal.SIGTERM)

    assert step.wait(120) == 143
    started = log.read_text().split()
    assert len(started) == 2
    while any(map(runs, started)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(runs, started))


def runs(pid: str) -> bool:
    """True if the process still runs; a process that has ended may be a zombie until its parent waits for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
