"""Ends a command at Ctrl-C or SIGTERM: what it started is stopped, and the person reads how to go on."""

import asyncio
import shlex
import signal
import sys
from collections.abc import Sequence

from qinglan.errors import QinglanError

INTERRUPTED, TERMINATED = 130, 143
"""Exit codes: 128 and the number of the signal."""

RESUMED = {"run", "demo", "prepay", "compare-teachers", "evaluate", "headroom"}
"""Commands, `style run` among them, that take what an earlier call has finished, and pay no answer twice."""


class InterruptedCommand(QinglanError):
    exit_code = INTERRUPTED


def interrupted(words: Sequence[str]) -> InterruptedCommand:
    """The error of a command that was stopped by Ctrl-C; `words` follow the program's name."""
    names = [word for word in words if not word.startswith("-")][:2]
    if RESUMED.isdisjoint(names):
        return InterruptedCommand("Stopped by Ctrl-C.")
    return InterruptedCommand(
        "Stopped by Ctrl-C. Finished steps and paid answers are kept, and nothing is paid twice. To go on:",
        f"  {shlex.join(['qinglan', *words])}",
    )


def end_at_sigterm() -> None:
    """Make SIGTERM end the command by SystemExit, so that everything it started is stopped."""
    signal.signal(signal.SIGTERM, _end)


def _end(*_: object) -> None:
    """Exit; inside of an event loop cancel its tasks, as asyncio prints a traceback of a task that exits."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        sys.exit(TERMINATED)
    loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks()])
