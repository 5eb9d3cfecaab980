"""A short form of `make chaos`, whose seed is fixed."""

import random
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.chaos.__main__ import play, undisturbed
from tests.chaos.disturb import KINDS, act
from tests.chaos.thread import Thread, start

pytestmark = pytest.mark.slow
SEED = 7


def test_a_run_that_is_disturbed_ends_as_one_that_was_left_alone(tmp_path: Path) -> None:
    thread = Thread.make(tmp_path)

    played = play(thread, undisturbed(thread), SEED)

    assert played.disturbances


WRITER = """
import time
while True:
    try:
        with open("lines", "a") as file:
            file.write("a\\n")
    except OSError:
        break
    time.sleep(0.01)
"""
"""Ends well once it cannot write."""


@pytest.mark.parametrize("kind", KINDS)
def test_each_disturbance_does_what_its_name_says(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with start([sys.executable, "-c", WRITER], tmp_path / "log") as run:
        while not (tmp_path / "lines").exists():
            time.sleep(0.01)
        writer = psutil.Process(run.pid)
        act(kind, writer, [writer], random.Random(1))
        if kind not in ("kill", "kill all", "full disk"):
            assert writer.is_running()
            run.kill()
        assert run.wait(timeout=60) == (0 if kind == "full disk" else -signal.SIGKILL)
