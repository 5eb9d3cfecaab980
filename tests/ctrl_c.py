"""For a process that is to be interrupted: Popen(..., preexec_fn=hears_ctrl_c), and for what it has started."""

import signal
from pathlib import Path


def hears_ctrl_c() -> None:
    """What a shell starts in its background ignores it, and so does all that is started from there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def goes_on(pid: int) -> bool:
    """Unlike a process that has ended and whose parent has not asked for its code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
