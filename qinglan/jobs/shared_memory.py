"""Shared memory that a training or an engine left behind: names in /dev/shm that no process holds any more.

verl has vLLM's processes killed, also at the end of a good run, so they remove nothing: each training would leave its
message queues and semaphores, and the machine's shared memory fill up. So would a vLLM that has to be killed.
"""

import os
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path("/dev/shm")

PATTERNS = ("psm_*", "sem.mp-*", "verl_weights_*", "*-cpushm_*")
"""Names that multiprocessing, verl and vLLM give to queues, semaphores, weights on their way and a CPU's ranks."""


def remove_abandoned_segments(since: float) -> None:
    """Remove segments of this user that were made since then and that no running process has mapped or open.

    Those of another training are held by its processes; a container has shared memory of its own. A maker holds a
    segment before it has its name, so the names are listed before the processes are looked at.
    """
    candidates = {
        path: inode for pattern in PATTERNS for path in FOLDER.glob(pattern) if (inode := _made_since(path, since))
    }
    if candidates:
        held = set(held_inodes())
        for path, inode in candidates.items():
            if inode not in held:
                path.unlink(missing_ok=True)


def _made_since(path: Path, since: float) -> int:
    """The inode of a file of this user that was made since then; 0 of any other."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0
    return status.st_ino if status.st_uid == os.getuid() and status.st_ctime >= since else 0


def held_inodes() -> Iterator[int]:
    """Inodes in /dev/shm that running processes have mapped or open.

    Names would not do: the C library makes a semaphore under a passing name, and its maker's mapping shows that one.
    """
    for process in Path("/proc").glob("[0-9]*"):
        try:
            maps = (process / "maps").read_text().splitlines()
            yield from (int(line.split()[4]) for line in maps if f" {FOLDER}/" in line)
            yield from _open_inodes(process)
        except OSError:  # another user's, or gone since
            continue


def _open_inodes(process: Path) -> Iterator[int]:
    for file in (process / "fd").iterdir():
        try:
            if str(file.readlink()).startswith(f"{FOLDER}/"):
                yield file.stat().st_ino
        except OSError:  # closed since
            continue
