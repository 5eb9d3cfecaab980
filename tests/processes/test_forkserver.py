"""The tests' forks leave nothing: not even what they have started, when their client or the tests' run is killed."""

import subprocess
import time
from pathlib import Path

import pytest

from tests.processes.ctrl_c import goes_on, started_with
from tests.processes.forkserver import fork_of, forked

PARENT = (
    "import signal, subprocess, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print(subprocess.Popen(['sleep', '600']).pid, flush=True)\n"
    "time.sleep(600)"
)


@pytest.mark.slow
def test_a_killed_client_leaves_neither_its_fork_nor_what_that_has_started() -> None:
    """A vLLM's engine core would keep gigabytes: one was found an hour after its test had been interrupted."""
    command = forked("timeit", "-n1", "-r1", PARENT, libraries=("timeit",))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        child = int(client.stdout.readline())
        started = [fork_of(client.pid), child]
        assert all(map(goes_on, started))

        client.kill()

    deadline = time.monotonic() + 30
    while any(map(goes_on, started)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_a_fork_is_known_by_its_training_although_its_environment_is_the_fork_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QINGLAN_SCRATCH", str(tmp_path))
    command = forked("http.server", "--bind", "127.0.0.1", "0", libraries=("http.server",))

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as client:
        assert client.stdout is not None
        client.stdout.read(1)  # it serves
        names = started_with(f"QINGLAN_SCRATCH={tmp_path}")
        client.terminate()

    assert [name for name in names if "http.server" in name and "-ES" not in name], "the fork, beside its client"
    assert started_with(f"QINGLAN_SCRATCH={tmp_path}") == []
