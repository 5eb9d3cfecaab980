"""How long the tests take, against what they may take, and where the time goes. `make bench-tests`

    make bench-tests RINGS="fast"        some of: fast test cluster ci

ci is .ci/run with everything built; it runs the rings test and cluster itself, and they are read out of it. The table
has the tests and fixtures that take longest. Seconds are those of this machine and of whatever else it does; CPU
seconds, with those of every process that a test started and waited for, are the same beside other work.
"""

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.report import report
from benchmarks.tests.imports import imported
from benchmarks.tests.plugin import VARIABLE, cpu_seconds

COMMANDS = {
    "fast": ["make", "test-fast"],
    "test": ["make", "test"],
    "cluster": ["make", "test-cluster"],
    "ci": [".ci/run"],
}
TARGETS = {"fast": 60.0, "test": 480.0, "cluster": 360.0, "ci": 1200.0}
INSIDE_CI = ("test", "cluster")
"""The sessions of pytest in .ci/run, in their order."""

PR_SET_CHILD_SUBREAPER = 36
ROWS = 100
PACKAGES = 15


class Ring(NamedTuple):
    """One ring as it was measured."""

    seconds: float
    cpu: float
    code: int
    sessions: list[dict[str, Any]]
    """Reports of the plugin for each run of pytest, the first one first."""


def main(rings: Sequence[str]) -> None:
    if strangers := set(rings) - COMMANDS.keys():
        sys.exit(f"No ring is called {min(strangers)}. There are: {', '.join(COMMANDS)}.")
    measured = {name: measure(COMMANDS[name]) for name in rings or ("fast", "ci")}
    figures = {name: ring_figures(ring) for name, ring in measured.items()}
    if "ci" in measured:
        for name, session in zip(INSIDE_CI, measured["ci"].sessions, strict=False):
            figures.setdefault(name, session_figures(session))
    print_table(note for ring in measured.values() for session in ring.sessions for note in notes(session))
    print_imports()
    ratios = {name: entry["seconds"] / TARGETS[name] for name, entry in figures.items()}
    worst = max(ratios.values())
    passed = all(ring.code == 0 for ring in measured.values())
    report("tests", worst, 1.0, passed and worst <= 1.0, passed=passed, **figures)


def measure(command: Sequence[str]) -> Ring:
    """Run a ring with the plugin in every pytest that it starts. Workers and servers that were forked count too: they
    become children of this process when those that started them end."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, VARIABLE: folder, "PYTEST_ADDOPTS": "-p benchmarks.tests.plugin"}
        began, cpu = time.monotonic(), cpu_seconds()
        code = exit_code_of(subprocess.Popen(command, env=environment).pid)
        seconds = time.monotonic() - began
        wait_for_orphans(60.0)
        used = cpu_seconds() - cpu
        written = sorted(Path(folder).glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        return Ring(seconds, used, code, [json.loads(path.read_bytes()) for path in written])


def exit_code_of(process: int) -> int:
    """Wait for a process and give its exit code. Orphans that end before it are waited for too: tests look whether a
    process is gone, and one that nobody waits for stays as a zombie."""
    while True:
        ended, status = os.wait()
        if ended == process:
            return os.waitstatus_to_exitcode(status)


def wait_for_orphans(seconds: float) -> None:
    """Wait until all children have ended, which their fork servers do soon after the tests."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.1)


def ring_figures(ring: Ring) -> dict[str, Any]:
    """A ring's times, and of what runs in it: the first session's."""
    parts = session_figures(ring.sessions[0]) if ring.sessions else {}
    return {**parts, "seconds": round(ring.seconds, 1), "cpu_seconds": round(ring.cpu, 1)}


def session_figures(session: dict[str, Any]) -> dict[str, Any]:
    """One run of pytest: what its processes spend before, on and after collecting the tests."""
    processes = session["processes"]
    spent = {name: sum(process[name] for process in processes) for name in ("start", "collection", "tests")}
    return {
        "seconds": round(processes[0]["seconds"], 1),
        "cpu_seconds": round(sum(spent.values()), 1),
        "processes": len(processes),
        **{f"{name}_cpu": round(value, 1) for name, value in spent.items()},
    }


def notes(session: dict[str, Any]) -> list[list[Any]]:
    return [note for process in session["processes"] for note in process["notes"]]


def print_table(entry: Iterable[list[Any]]) -> None:
    """The dearest tests, fixtures and files; of what comes several times, the sum."""
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
    for kind, name, seconds, cpu in entry:
        row = sums[kind, name]
        row[0], row[1], row[2] = row[0] + seconds, row[1] + cpu, row[2] + 1
    dearest = sorted(sums.items(), key=lambda item: -item[1][0])[:ROWS]
    print(f"{'seconds':>8} {'CPU':>7} {'times':>5}  kind      what")
    for (kind, name), (seconds, cpu, times) in dearest:
        print(f"{seconds:8.2f} {cpu:7.2f} {times:5.0f}  {kind:<9} {name}")


def print_imports() -> None:
    """The packages that take longest to import while every test is collected."""
    seconds = imported(["-m", "not slow"])
    shown = ", ".join(f"{name} {value:.1f}" for name, value in seconds.most_common(PACKAGES))
    print(f"Imports while the fast tests are collected: {seconds.total():.1f} s: {shown}")


if __name__ == "__main__":
    main(sys.argv[1:])
