"""End a group of processes if the process that started them dies, even by SIGKILL.

    process = subprocess.Popen(command, start_new_session=True)
    with process_guard(process.pid, seconds=15):
        ...                                          # end the process before the block ends

A killed process cannot stop its children. Linux can send them one signal (prctl, PR_SET_PDEATHSIG), which is not
enough for vLLM: while it started, it ignored SIGTERM for 27 s, and SIGKILL would leave its engine core running, which
holds the GPU's memory. So a small separate process waits beside the group and ends all of it.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_SECONDS = 0.5


@contextmanager
def process_guard(group: int, seconds: float) -> Iterator[None]:
    """Guard a process group during the block: if this process dies, the group gets SIGTERM, then SIGKILL.

    SIGKILL follows after at most `seconds`. `group` is the id of a process that leads a session.
    """
    # With -I and -S, neither the environment nor installed packages decide what runs, and it starts in 20 ms.
    command = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(group), str(os.getpid()), str(seconds)]
    try:
        guard = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:  # no memory, or too many processes: without a guard the group could be left behind
        end_group(group, 0.0)
        raise
    try:
        yield
    finally:
        guard.communicate(b"done")


def wait_for_parent(parent: int) -> bool:
    """Wait until the parent dies (returns True), or writes that its process group has ended (returns False).

    A closed pipe would not prove that the parent died, because a fork of it may hold the pipe open for longer.
    """
    # A process whose parent has died gets another parent: https://man7.org/linux/man-pages/man2/getppid.2.html
    while os.getppid() == parent:
        ready, _, _ = select.select([0], [], [], POLL_SECONDS)
        if ready:
            return not os.read(0, 1)
    return True


def end_group(group: int, seconds: float) -> None:
    """Send SIGTERM to every process of the group, and SIGKILL if a process is left after `seconds`."""
    until = time.monotonic() + seconds
    exists = _signal(group, signal.SIGTERM)
    while exists and time.monotonic() < until:
        time.sleep(0.1)
        exists = _signal(group, 0)
    _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> bool:
    """Send a signal to the group; False if it has no process left. A zombie counts as one until its parent waits for
    it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # no process, or the id now belongs to another user's group
        return False
    return True


if __name__ == "__main__":
    if wait_for_parent(int(sys.argv[2])):
        end_group(int(sys.argv[1]), float(sys.argv[3]))
