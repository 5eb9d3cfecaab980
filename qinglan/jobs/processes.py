"""Find and end all processes of a training: Ray's leave the process group in which they were started.

Each inherits a mark in its environment and keeps its files in a folder of the training, and is found by either.
No other process has these.
"""

import contextlib
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qinglan.files import atomic_write
from qinglan.jobs.shared_memory import remove_abandoned_segments

PROCESS_MARK_VARIABLE = "QINGLAN_TRAINING"
POLITE_SECONDS = 5.0


@contextmanager
def process_cleanup(note: Path) -> Iterator[tuple[str, Path]]:
    """A mark for the environment and a folder for temporary files; after the block, every process with either is
    ended, and shared memory that no process holds is removed.

    `note` remembers both: what a killed stage left behind is ended when it runs again. The folder's path is short,
    since Ray puts sockets into it, and those may not have long names.
    """
    if note.is_file():
        mark, folder = note.read_text().split("\n")
        _end(mark, folder, note.stat().st_mtime)
    mark, folder = uuid.uuid4().hex, tempfile.mkdtemp(prefix="ql-")
    started = Path(folder).stat().st_mtime
    try:
        with atomic_write(note) as partial:  # half a note would stop every later run of the stage
            partial.write_text(f"{mark}\n{folder}")
        yield mark, Path(folder)
    finally:
        _end(mark, folder, started)
        note.unlink(missing_ok=True)  # another pod of the same job may have been first


def _end(mark: str, folder: str, started: float) -> None:
    terminate_processes(mark, folder)
    shutil.rmtree(folder, ignore_errors=True)
    remove_abandoned_segments(started)


def terminate_processes(mark: str, folder: str) -> None:
    """End every process with this mark, or with a file of this folder open: politely, then for good."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in find_processes(mark, folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        if _wait_until_gone(mark, folder):
            return


def _wait_until_gone(mark: str, folder: str) -> bool:
    until = time.monotonic() + POLITE_SECONDS
    while time.monotonic() < until:
        if not find_processes(mark, folder):
            return True
        time.sleep(0.05)
    return False


def find_processes(mark: str, folder: str) -> list[int]:
    """The running processes of a training.

    Ray's agents write their title over their environment, the mark with it; their logs stay open in the folder.
    """
    marked = f"{PROCESS_MARK_VARIABLE}={mark}".encode()
    processes = (process for process in Path("/proc").glob("[0-9]*") if int(process.name) != os.getpid())
    return [int(path.name) for path in processes if marked in _environment(path) or _holds(path, folder)]


def wait_for_process_group(group: int, seconds: float) -> None:
    """Wait until no process of this group runs any more; what still does after so long is killed."""
    until = time.monotonic() + seconds
    while _runs(group):
        if time.monotonic() > until:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
            return
        time.sleep(0.05)


def _runs(group: int) -> bool:
    """True if a process of this group still runs; a zombie does not."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            state, _, its_group = (process / "stat").read_text().rpartition(") ")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return True
    return False


def _environment(process: Path) -> list[bytes]:
    try:
        if b") Z " in (process / "stat").read_bytes():
            return []
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:  # another user's, or gone since
        return []


def _holds(process: Path, folder: str) -> bool:
    try:
        return any(_points_into(open_file, folder) for open_file in (process / "fd").iterdir())
    except OSError:
        return False


def _points_into(open_file: Path, folder: str) -> bool:
    try:
        return str(open_file.readlink()).startswith(f"{folder}/")
    except OSError:  # closed since
        return False
