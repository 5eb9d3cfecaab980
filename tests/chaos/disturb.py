"""Disturbances of a run: a process is killed, paused, or gets no more disk; the clock is set; a second run comes."""

import contextlib
import random
import resource
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.chaos.thread import LONGEST_JUMP_HOURS, Thread, processes, start

KINDS = ("kill", "kill all", "pause", "full disk", "clock", "second run", "nothing")


def disturb(
    run: "subprocess.Popen[bytes]",
    command: list[str],
    errors: Path,
    thread: Thread,
    chance: random.Random,
    count: int,
) -> list[str]:
    """Disturb a run so many times, or until it ends; says what was done to which process."""
    done = []
    for _ in range(count):
        time.sleep(chance.uniform(0.2, 4.0))
        alive = processes(run.pid) if run.poll() is None else []
        if not alive:
            break
        victim, kind = chance.choice(alive), chance.choice(KINDS)
        if kind == "clock":
            hours = chance.choice((-1, 1)) * chance.randint(1, LONGEST_JUMP_HOURS)
            thread.clock.set(hours * 3600)
            done.append(f"clock: {hours:+} h")
            continue
        with contextlib.suppress(psutil.NoSuchProcess):
            name = " ".join(victim.cmdline()[-4:])[-40:]
            act(kind, victim, alive, chance)
            done.append(f"{kind}: {name}")
        if kind == "second run":
            intrude(run, command, errors, thread.environment)
    return done


def act(kind: str, victim: psutil.Process, alive: list[psutil.Process], chance: random.Random) -> None:
    if kind == "kill":
        victim.kill()
    elif kind == "kill all":
        for process in reversed(alive):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    elif kind == "pause":
        victim.suspend()
        time.sleep(chance.uniform(0.2, 3.0))
        victim.resume()
    elif kind == "full disk":
        before = victim.rlimit(psutil.RLIMIT_FSIZE)
        victim.rlimit(psutil.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))  # every write ends with EFBIG
        time.sleep(chance.uniform(0.2, 2.0))
        victim.rlimit(psutil.RLIMIT_FSIZE, before)


def intrude(run: "subprocess.Popen[bytes]", command: list[str], errors: Path, environment: Mapping[str, str]) -> None:
    """The same command in the same folder: it is refused for as long as the first one runs."""
    with start(command, errors, environment) as second:
        second.communicate(timeout=120)
    assert second.returncode != 0 or run.poll() is not None, "two runs in one folder went on side by side"
