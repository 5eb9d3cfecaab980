"""Processes that a step has started are awaited, and ended if they do not end by themselves."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from qinglan.jobs.processes import (
    PROCESS_MARK_VARIABLE,
    find_processes,
    process_cleanup,
    temporary_folder,
    wait_for_process_group,
)
from tests.processes.ctrl_c import goes_on

STEP = """
import os, signal, sys, time
from pathlib import Path
said = Path(sys.argv[1])

def end(*_):
    time.sleep(float(sys.argv[2]))
    said.with_name("ended").touch()
    sys.exit()

signal.signal(signal.SIGTERM, end)
said.write_text(str(os.getpid()))
time.sleep(600)
"""
RUNNER = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"


@pytest.mark.parametrize(("takes", "limit", "by_itself"), [(0.5, 600.0, True), (600.0, 0.2, False)])
def test_a_step_that_takes_its_time_to_end_is_awaited_for_as_long_as_it_may(
    tmp_path: Path, takes: float, limit: float, by_itself: bool
) -> None:
    """Its runner, which hears the signal too, is gone at once."""
    pid_file = tmp_path / "pid"
    command = [sys.executable, "-c", RUNNER, STEP, str(pid_file), str(takes)]
    with subprocess.Popen(command, start_new_session=True) as runner:
        while not (pid_file.is_file() and pid_file.read_text()):
            time.sleep(0.02)
        step = int(pid_file.read_text())
        runner.send_signal(signal.SIGTERM)
        os.kill(step, signal.SIGTERM)
        runner.wait()

        wait_for_process_group(runner.pid, limit)

    assert (tmp_path / "ended").exists() == by_itself
    end = time.monotonic() + 60
    while goes_on(step) and time.monotonic() < end:
        time.sleep(0.02)
    assert not goes_on(step)


@pytest.mark.slow
def test_a_note_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a note names another folder than the training's, and would be read by the next attempt."""

    def write_half(path: Path, text: str) -> None:
        path.write_bytes(text.encode()[:10])
        raise OSError("the disk is full")

    monkeypatch.setattr(Path, "write_text", write_half)

    with pytest.raises(OSError, match="No space left"), process_cleanup(tmp_path / "running"):
        pass

    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_processes_of_a_training_are_ended_even_outside_its_process_group(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    child = f"import subprocess; subprocess.Popen({sleep}, start_new_session=True)"
    with process_cleanup(tmp_path / "running") as (mark, temporary):
        subprocess.run([sys.executable, "-c", child], env={**os.environ, PROCESS_MARK_VARIABLE: mark}, check=True)
        assert len(find_processes(mark, str(temporary))) == 1

    assert find_processes(mark, str(temporary)) == []
    assert not temporary.exists()


def test_a_process_that_has_lost_its_mark_is_found_by_the_files_it_holds(tmp_path: Path) -> None:
    holds = "import sys, time; kept = open(sys.argv[1], 'w'); time.sleep(60)"
    with process_cleanup(tmp_path / "running") as (_, temporary):
        log = temporary / "agent.log"
        agent = subprocess.Popen([sys.executable, "-c", holds, log], start_new_session=True)
        while not log.exists():
            time.sleep(0.01)

    assert agent.wait(60) == -signal.SIGTERM


@pytest.mark.slow
def test_processes_left_by_a_killed_stage_are_ended_when_it_runs_again(tmp_path: Path) -> None:
    note = tmp_path / "running"
    earlier = uuid.uuid4().hex
    temporary_folder(earlier).mkdir()
    stray = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], env={**os.environ, PROCESS_MARK_VARIABLE: earlier}
    )
    while not find_processes(earlier, str(temporary_folder(earlier))):
        time.sleep(0.01)
    note.write_text(earlier)

    with process_cleanup(note) as (mark, _):
        assert mark != earlier
        assert stray.wait(60) != 0
        assert not temporary_folder(earlier).exists()


@pytest.mark.parametrize("text", ["{mark}\n{folder}", "../{folder}", "{folder}", ""])
def test_a_note_that_names_a_folder_removes_nothing(text: str, tmp_path: Path) -> None:
    """A run's folder may be somebody else's, and its note could name any folder of ours."""
    folder, note = tmp_path / "mine", tmp_path / "running"
    folder.mkdir()
    note.write_text(text.format(mark=uuid.uuid4().hex, folder=folder))

    with process_cleanup(note):
        pass

    assert folder.is_dir()
