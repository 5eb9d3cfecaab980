"""End a group of processes if the process that started them dies, even by SIGKILL.

    with process_guard(seconds=15) as guard:
        process = subprocess.Popen(command, start_new_session=True)
        guard(process.pid)
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

POLL_SECONDS = 0.5
DONE = "done"


@contextmanager
def process_guard(seconds: float) -> Iterator[Callable[[int], None]]:
    """Guard a group until the block ends: if this process dies, the group gets SIGTERM, and SIGKILL after `seconds`.

    The guard starts before the group, because a kill between both starts would leave the group behind. Call the
    yielded function with the id of the process that leads the group's session, as soon as that process exists.
    """
    # -I and -S: neither the environment nor installed packages decide what runs, and it starts in 20 ms.
    command = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(os.getpid()), str(seconds)]
    guard = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    pipe = guard.stdin
    assert pipe is not None

    def name_group(group: int) -> None:
        with suppress(BrokenPipeError):  # the guard was killed: then nothing guards the group
            pipe.write(f"{group}\n".encode())
            pipe.flush()

    try:
        yield name_group
    finally:
        guard.communicate(f"{DONE}\n".encode())


def wait_for_parent(parent: int) -> int:
    """Wait until the parent dies or writes DONE. Returns the group that is to be ended; 0 if there is none.

    A closed pipe would not prove that the parent died, because a fork of it may hold the pipe open for longer.
    """
    read, ended = b"", False
    # A process whose parent has died gets another parent: https://man7.org/linux/man-pages/man2/getppid.2.html
    while not ended:
        ended = os.getppid() != parent
        if select.select([0], [], [], 0 if ended else POLL_SECONDS)[0]:
            chunk = os.read(0, 64)
            read, ended = read + chunk, ended or not chunk
        lines = read.decode().splitlines()
        if DONE in lines:
            return 0
    return int(lines[0]) if lines else 0


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
    if orphans := wait_for_parent(int(sys.argv[1])):
        end_group(orphans, float(sys.argv[2]))
