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
"""Patterns of the file names that multiprocessing, verl and vLLM use for queues, semaphores, weights in transfer, and
ranks on a CPU."""


def remove_abandoned_segments(since: float) -> None:
    """Remove this user's files in /dev/shm that are newer than `since` and that no running process holds.

    A process holds a file that it has mapped or open. Files of another training stay, because its processes hold
    them. A container has its own /dev/shm.
    """
    # A process opens a file before the file has its final name. So the names are listed first, and the processes are
    # read afterwards.
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
    """Yield the inodes of the files in /dev/shm that running processes have mapped or open.

    File names do not suffice, because the C library creates a semaphore under a temporary name, and /proc/<pid>/maps
    still shows this name.
    """
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's process, or one that has ended
            maps = (process / "maps").read_text().splitlines()
            yield from (int(line.split()[4]) for line in maps if f" {FOLDER}/" in line)
            for file in (process / "fd").iterdir():
                with suppress(OSError):  # closed meanwhile
                    if str(file.readlink()).startswith(f"{FOLDER}/"):
                        yield file.stat().st_ino
