"""Find and end all processes of a training, because Ray's processes leave the process group of the training.

A process belongs to a training if its environment, which processes inherit, has the training's mark, or if it has a
file open in the training's temporary folder.
"""

import contextlib
import os
import re
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qinglan.files.files import atomic_write
from qinglan.jobs.shared_memory import remove_abandoned_segments

PROCESS_MARK_VARIABLE = "QINGLAN_TRAINING"
MARK = re.compile("[0-9a-f]{32}")
POLITE_SECONDS = 5.0


@contextmanager
def process_cleanup(note: Path) -> Iterator[tuple[str, Path]]:
    """Yield a process mark and a temporary folder. After the block, end all processes of the training.

    The processes of the training are all processes with the mark in the environment variable PROCESS_MARK_VARIABLE,
    or with an open file in the folder. Shared memory that no process holds is also removed. The file `note` stores
    the mark, so that the next run of a killed stage ends the processes of the killed run. It does not store the
    folder, because a note from another person's run could name any folder.
    """
    if note.is_file():
        earlier = note.read_text()
        if MARK.fullmatch(earlier):
            _end(earlier, note.stat().st_mtime)
    mark = uuid.uuid4().hex
    folder = temporary_folder(mark)
    folder.mkdir(mode=0o700)
    started = folder.stat().st_mtime
    try:
        with atomic_write(note) as partial:
            partial.write_text(mark)
        yield mark, folder
    finally:
        _end(mark, started)
        note.unlink(missing_ok=True)  # another pod of the same job may have removed it


def temporary_folder(mark: str) -> Path:
    """Return the folder of a training's temporary files. Its path is short, because Ray puts sockets into it.
    A socket's path has at most 107 bytes: https://man7.org/linux/man-pages/man7/unix.7.html
    """
    return Path(tempfile.gettempdir()) / f"ql-{mark[:8]}"


def _end(mark: str, started: float) -> None:
    folder = temporary_folder(mark)
    terminate_processes(mark, str(folder))
    shutil.rmtree(folder, ignore_errors=True)
    remove_abandoned_segments(started)


def terminate_processes(mark: str, folder: str) -> None:
    """End every process that has this mark or an open file in this folder, by SIGTERM and later by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in find_processes(mark, folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        until = time.monotonic() + POLITE_SECONDS
        while time.monotonic() < until:
            if not find_processes(mark, folder):
                return
            time.sleep(0.05)


def find_processes(mark: str, folder: str) -> list[int]:
    """Return the ids of the processes that have this mark, or an open file in this folder.

    Ray's agents overwrite their environment, including the mark, with their title. But they keep log files in the
    folder open.
    """
    marked = f"{PROCESS_MARK_VARIABLE}={mark}".encode()
    processes = (process for process in Path("/proc").glob("[0-9]*") if int(process.name) != os.getpid())
    return [int(path.name) for path in processes if marked in _environment(path) or _holds(path, folder)]


def wait_for_process_group(group: int, seconds: float) -> None:
    """Wait until no process of the group runs. After `seconds`, kill the remaining processes."""
    until = time.monotonic() + seconds
    while _runs(group):
        if time.monotonic() > until:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
            return
        time.sleep(0.05)


def _runs(group: int) -> bool:
    """Return True if a process of this group still runs. Zombies do not count."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            # The name stands in parentheses and may hold any character:
            # https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
            state, _, its_group = (process / "stat").read_text().rpartition(") ")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return True
    return False


def _environment(process: Path) -> list[bytes]:
    try:
        if b") Z " in (process / "stat").read_bytes():
            return []
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:  # another user's process, or one that has ended
        return []


def _holds(process: Path, folder: str) -> bool:
    """Return True if the process has a file of the folder open."""
    with contextlib.suppress(OSError):  # another user's process, or one that has ended
        for file in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                if str(file.readlink()).startswith(f"{folder}/"):
                    return True
    return False
