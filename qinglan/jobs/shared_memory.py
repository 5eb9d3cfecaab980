"""Remove shared memory that a training or a vLLM engine left behind: files in /dev/shm that no process holds.

verl kills vLLM's processes even after a successful training, so they cannot clean up. Without this module, each
training would leave message queues and semaphores, until the machine's shared memory is full.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

FOLDER = Path("/dev/shm")

PATTERNS = ("psm_*", "sem.mp-*", "verl_weights_*", "*-cpushm_*")
"""File names of multiprocessing, verl and vLLM for queues, semaphores, weights in transfer, and ranks on a CPU."""


def remove_abandoned_segments(since: float) -> None:
    """Remove this user's segments that are newer than `since` and that no running process has mapped or open.

    Another training's segments stay, because its processes hold them. A container has its own shared memory.
    """
    # A maker holds a segment before it has its name, so the names are listed before the processes are read.
    candidates = {}
    for path in (path for pattern in PATTERNS for path in FOLDER.glob(pattern)):
        with suppress(FileNotFoundError):
            status = path.stat()
            if status.st_uid == os.getuid() and status.st_ctime >= since:
                candidates[path] = status.st_ino
    if candidates:
        held = set(held_inodes())
        for path, inode in candidates.items():
            if inode not in held:
                path.unlink(missing_ok=True)


def held_inodes() -> Iterator[int]:
    """Inodes in /dev/shm that running processes have mapped or open.

    Names do not suffice: the C library creates a semaphore under a temporary name, which the mapping still shows.
    """
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's process, or one that has ended
            maps = (process / "maps").read_text().splitlines()
            yield from (int(line.split()[4]) for line in maps if f" {FOLDER}/" in line)
            for file in (process / "fd").iterdir():
                with suppress(OSError):  # closed meanwhile
                    if str(file.readlink()).startswith(f"{FOLDER}/"):
                        yield file.stat().st_ino
