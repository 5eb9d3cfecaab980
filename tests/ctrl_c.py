"""For a process that is to be interrupted: Popen(..., preexec_fn=hears_ctrl_c)."""

import signal


def hears_ctrl_c() -> None:
    """What a shell starts in its background ignores it, and so does all that is started from there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
