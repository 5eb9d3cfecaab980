"""For a process that is to be interrupted: Popen(..., preexec_fn=hears_ctrl_c), and for what it has started."""

import contextlib
import signal
from pathlib import Path

from tests.processes.forkserver import LONGEST_NAME


def hears_ctrl_c() -> None:
    """Restore the signal: a process that a shell starts in the background ignores it, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def goes_on(pid: int) -> bool:
    """Unlike a process that has ended and whose parent has not asked for its code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def started_with(variable: str) -> list[str]:
    """The commands of processes that had this in their environment when they began, forks of tests included."""
    result = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0") or _carries(folder, variable):
                result.append((folder / "cmdline").read_text())
    return result


def _carries(folder: Path, variable: str) -> bool:
    """tests/processes/forkserver.py has a fork hold an open file of this name."""
    name = f"/memfd:{variable[:LONGEST_NAME]} (deleted)"
    return any(str(file.readlink()) == name for file in (folder / "fd").iterdir())
