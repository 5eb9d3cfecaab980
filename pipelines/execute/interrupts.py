"""End a command at Ctrl-C or SIGTERM: stop everything that it started, and say how to continue."""

import asyncio
import shlex
import signal
import sys
from collections.abc import Sequence

from qinglan.errors import QinglanError

INTERRUPTED, TERMINATED = 130, 143
"""Exit codes: 128 plus the number of the signal."""

RESUMED = {"run", "demo", "prepay", "compare-teachers", "headroom"}
"""Commands that continue an earlier call and pay for no answer twice; `run` includes `style run`."""


class InterruptedCommand(QinglanError):
    """A command that was stopped by Ctrl-C."""

    exit_code, signal = INTERRUPTED, "Ctrl-C"


class TerminatedCommand(InterruptedCommand):
    """A command that was stopped by SIGTERM: by `timeout`, an init system or a cluster."""

    exit_code, signal = TERMINATED, "SIGTERM"


def interrupted(words: Sequence[str], kind: type[InterruptedCommand] = InterruptedCommand) -> InterruptedCommand:
    """Return the error of a stopped command; `words` are the command line without the program's name."""
    names = [word for word in words if not word.startswith("-")][:2]
    if RESUMED.isdisjoint(names):
        return kind(f"Stopped by {kind.signal}.")
    return kind(
        f"Stopped by {kind.signal}. Finished steps and paid answers are kept, and nothing is paid twice. To go on:",
        f"  {shlex.join(['qinglan', *words])}",
    )


def end_at_sigterm() -> None:
    """Make SIGTERM end the command by SystemExit, so that everything it started is stopped."""
    signal.signal(signal.SIGTERM, _end)


def _end(*_: object) -> None:
    """Exit the process; inside an event loop, cancel its tasks."""
    # sys.exit() in a callback of a loop is reported as an exception of a task; cancelled tasks end quietly.
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        sys.exit(TERMINATED)
    loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks()])
