"""Shared memory that a training left behind: names in /dev/shm that no process holds any more.

verl has vLLM's processes killed, also at the end of a good run, so they remove nothing: each training would leave its
message queues and semaphores, and the machine's shared memory fill up.
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
    candidates = [path for pattern in PATTERNS for path in FOLDER.glob(pattern) if _made_since(path, since)]
    if candidates:
        held = set(held_segments())
        for path in candidates:
            if str(path) not in held:
                path.unlink(missing_ok=True)


def _made_since(path: Path, since: float) -> bool:
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return status.st_uid == os.getuid() and status.st_ctime >= since


def held_segments() -> Iterator[str]:
    """Paths in /dev/shm that running processes have mapped or open."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            maps = (process / "maps").read_text().splitlines()
            yield from (line.rpartition(" ")[2] for line in maps if f" {FOLDER}/" in line)
            yield from _open_files(process)
        except OSError:  # another user's, or gone since
            continue


def _open_files(process: Path) -> Iterator[str]:
    for file in (process / "fd").iterdir():
        try:
            target = str(file.readlink())
        except OSError:  # closed since
            continue
        if target.startswith(f"{FOLDER}/"):
            yield target
