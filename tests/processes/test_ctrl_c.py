"""Whoever stops the tests in their middle finds no process of theirs, and so no port, afterwards."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from tests.processes.ctrl_c import hears_ctrl_c, started_with
from tests.processes.forkserver import forked

pytestmark = pytest.mark.slow

MARK = "QINGLAN_SCRATCH"
REPOSITORY = Path(__file__).parents[2]
SERVER = """
import subprocess, time
from tests.processes.forkserver import forked

def test_it():
    with subprocess.Popen(forked("http.server", "--bind", "127.0.0.1", "0", libraries=("http.server",))):
        time.sleep(3600)
"""
TRAINING = (
    "tests/components/training/ppo/test_ppo_stage.py::test_lora_with_kl_and_a_critic_is_served_as_it_was_trained"
)


def test_ctrl_c_in_the_middle_of_a_training_and_of_a_server_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "test_server.py").write_text(SERVER)
    mark = f"QINGLAN_TESTED_BY={uuid4()}"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--numprocesses=2", TRAINING, str(tmp_path)]
    environment = os.environ | dict([mark.split("=")])
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, start_new_session=True,
        preexec_fn=hears_ctrl_c,
    ) as process:  # fmt: skip
        while not all(any(name in one for one in started_with(mark)) for name in ("ray::WorkerDict", "http.server")):
            assert process.poll() is None
            time.sleep(0.2)

        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=240)

    assert process.returncode == pytest.ExitCode.INTERRUPTED
    deadline = time.monotonic() + 60
    while (left := started_with(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []


def test_a_fork_is_known_by_its_training_although_its_environment_is_the_fork_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))
    command = forked("http.server", "--bind", "127.0.0.1", "0", libraries=("http.server",))

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as client:
        assert client.stdout is not None
        client.stdout.read(1)  # it serves
        names = started_with(f"{MARK}={tmp_path}")
        client.terminate()

    assert [name for name in names if "http.server" in name and "-ES" not in name], "the fork, beside its client"
    assert started_with(f"{MARK}={tmp_path}") == []
