"""Everything that a training started, wherever it went: Ray's processes leave the process group they came from.

Each inherits a mark in its environment, by which it is found. Nobody else's process has that mark.
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

MARK = "QINGLAN_TRAINING"
POLITE_SECONDS = 5.0


@contextmanager
def nothing_left() -> Iterator[dict[str, str]]:
    """Variables for a command; when the block ends, all that carries them is ended and its temporary files are gone.

    The folder's path is short: Ray puts sockets into it, and those may not have long names.
    """
    mark = uuid.uuid4().hex
    folder = Path(tempfile.mkdtemp(prefix="ql-"))
    try:
        yield {MARK: mark, "RAY_TMPDIR": str(folder), "TMPDIR": str(folder)}
    finally:
        end_marked(mark)
        shutil.rmtree(folder, ignore_errors=True)


def end_marked(mark: str) -> None:
    """End every process with this mark: politely, then for good."""
    for number, seconds in ((signal.SIGTERM, POLITE_SECONDS), (signal.SIGKILL, POLITE_SECONDS)):
        for process in marked(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        if _gone(mark, seconds):
            return


def _gone(mark: str, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not marked(mark):
            return True
        time.sleep(0.05)
    return False


def marked(mark: str) -> list[int]:
    """Processes of ours with this mark, those left that are running."""
    wanted = f"{MARK}={mark}".encode()
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if wanted in _environment(folder)]


def _environment(process: Path) -> list[bytes]:
    try:
        if b") Z " in (process / "stat").read_bytes():
            return []
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:  # another user's, or gone since
        return []
