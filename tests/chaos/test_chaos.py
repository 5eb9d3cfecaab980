"""A short form of `make chaos`, whose seed is fixed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.__main__ import play, undisturbed
from tests.chaos.set_clock import SetClock
from tests.chaos.thread import Thread
from tests.processes.forked_runs import fork_environment

pytestmark = pytest.mark.slow
SEED = 7


@pytest.mark.nightly
def test_a_run_that_is_disturbed_ends_as_one_that_was_left_alone(tmp_path: Path) -> None:
    """Its processes are its own, to be killed and paused; those of the run left alone are forks."""
    thread = Thread.make(tmp_path)

    played = play(thread, undisturbed(thread, fork_environment(models=False)), SEED)

    assert played.disturbances


TELLER = """
import sys, time
from datetime import UTC, datetime
for _ in sys.stdin:
    print(time.time(), datetime.now(UTC).timestamp(), time.monotonic(), flush=True)
"""


@pytest.mark.parametrize("hours", [-5, 5])
def test_the_clock_is_set_under_a_running_process_and_durations_stay(hours: int, tmp_path: Path) -> None:
    clock = SetClock.make(tmp_path)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command, environment = [sys.executable, "-c", TELLER], {**os.environ, **clock.environment}
    with subprocess.Popen(command, env=environment, **pipes) as teller:  # type: ignore[call-overload]

        def report() -> list[float]:
            teller.stdin.write("\n")
            teller.stdin.flush()
            return [float(word) for word in teller.stdout.readline().split()]

        before = report()
        clock.set(hours * 3600)
        after = report()
        teller.stdin.close()

    assert [round((late - early) / 3600, 1) for early, late in zip(before, after, strict=True)] == [hours, hours, 0]
