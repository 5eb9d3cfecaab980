"""Remove shared memory that a training or an engine left behind: names in /dev/shm that no process holds.

verl kills vLLM's processes, also at the end of a good run, so they remove nothing: each training would leave its
message queues and semaphores until the machine's shared memory is full. So would a vLLM that has to be killed.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

FOLDER = Path("/dev/shm")

PATTERNS = ("psm_*", "sem.mp-*", "verl_weights_*", "*-cpushm_*")
"""Names that multiprocessing, verl and vLLM give to queues, semaphores, weights on their way and a CPU's ranks."""


def remove_abandoned_segments(since: float) -> None:
    """Remove segments of this user that were made since then and that no running process has mapped or open.

    Segments of another training are held by its processes; a container has its own shared memory.
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

    Names would not do: the C library makes a semaphore under a temporary name, which its maker's mapping still shows.
    """
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's process, or one that has ended
            maps = (process / "maps").read_text().splitlines()
            yield from (int(line.split()[4]) for line in maps if f" {FOLDER}/" in line)
            for file in (process / "fd").iterdir():
                with suppress(OSError):  # closed meanwhile
                    if str(file.readlink()).startswith(f"{FOLDER}/"):
                        yield file.stat().st_ino
