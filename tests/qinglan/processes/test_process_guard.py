"""Processes that a process has started end with it, however it ends, and even if they ignore SIGTERM."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qinglan.processes import process_guard as guard_module
from qinglan.processes.process_guard import process_guard
from tests.processes.ctrl_c import goes_on

ROOT = Path(__file__).parents[3]

SERVER = """#!{python} -S
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_DFL if "obeys" in "{behaviour}" else signal.SIG_IGN)
worker = os.fork()
if worker == 0 and "group" in "{behaviour}":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open("{pids}", "a") as pids:
    pids.write(f"{{os.getpid()}}\\n")
time.sleep(600)
"""
"""Such as a vLLM that is starting: an engine core beside it, and for half a minute neither heeds SIGTERM."""

STARTS = {
    "a service": "services.start_command([server], 'x', log)",
    "an engine": "engine_process.run_engine(log.parent, [], log, 600.0, python=server)",
    "a training": "contextlib.nullcontext(local.run_command(local.Command([server]), log))",
    "a guarded process": "guarded(server)",
}
PARENT = """
import contextlib, os, signal, subprocess, time
from pathlib import Path
from qinglan.processes import process_guard, services
from qinglan.jobs import local
from qinglan.rewriter import engine_process

@contextlib.contextmanager
def guarded(server):
    with process_guard.process_guard(1.0) as guard:
        guard(subprocess.Popen([server], start_new_session=True).pid)
        yield

services.STOP_SECONDS = local.STOP_SECONDS = 1.0
server, log = "{server}", Path("{log}")
with {start}:
    if "{kind}" == "a guarded process":
        os.fork()
    time.sleep(600)
"""


def pids(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def wait_until(true: object, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def server(folder: Path, behaviour: str) -> Path:
    path = folder / "server"
    path.write_text(SERVER.format(python=sys.executable, behaviour=behaviour, pids=folder / "pids"))
    path.chmod(0o755)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", ["obeys SIGTERM", "ignores SIGTERM", "obeys SIGTERM, not so its group"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT], ids=lambda end: end.name)
@pytest.mark.parametrize("kind", ["a service", "an engine", "a training"])
def test_nothing_outlives_the_process_that_started_it(
    kind: str, end: signal.Signals, behaviour: str, tmp_path: Path
) -> None:
    settings = {"server": server(tmp_path, behaviour), "log": tmp_path / "log", "kind": kind, "start": STARTS[kind]}
    parent = subprocess.Popen([sys.executable, "-c", PARENT.format(**settings)], cwd=ROOT, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(pids(tmp_path / "pids")) == 2)

    parent.send_signal(end)
    parent.wait()

    started = pids(tmp_path / "pids")
    wait_until(lambda: not any(goes_on(pid) for pid in started))


@pytest.mark.slow
def test_a_fork_that_lives_on_does_not_hide_the_parents_end(tmp_path: Path) -> None:
    """It holds the other end of the guard's pipe."""
    kind = "a guarded process"
    settings = {"server": server(tmp_path, "ignores"), "log": tmp_path / "log", "kind": kind, "start": STARTS[kind]}
    parent = subprocess.Popen([sys.executable, "-c", PARENT.format(**settings)], cwd=ROOT, start_new_session=True)
    wait_until(lambda: len(pids(tmp_path / "pids")) == 2)

    parent.kill()
    parent.wait()

    try:
        wait_until(lambda: not any(goes_on(pid) for pid in pids(tmp_path / "pids")))
    finally:
        os.killpg(parent.pid, signal.SIGKILL)  # the fork


def test_a_guard_ends_with_its_block_and_touches_nothing() -> None:
    with process_guard(0.0) as guard:
        process = subprocess.Popen(["sleep", "600"], start_new_session=True)
        guard(process.pid)

    assert process.poll() is None
    process.kill()
    process.wait()


def test_a_parent_that_dies_before_it_starts_anything_leaves_a_guard_that_ends() -> None:
    """Process 1 is not its parent, and its pipe is closed without a group."""
    guard = [sys.executable, "-I", "-S", str(Path(guard_module.__file__)), "1", "0.0"]

    assert subprocess.run(guard, stdin=subprocess.DEVNULL, timeout=60).returncode == 0


def test_without_a_guard_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qinglan.processes.process_guard.sys.executable", "/nonexistent/python")

    with pytest.raises(FileNotFoundError), process_guard(0.0):
        raise AssertionError("the block is not entered")
