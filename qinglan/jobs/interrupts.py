"""Being told to stop, as an exception: what was started is ended on the way out."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SIGTERM_EXIT_CODE = 143


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """SIGTERM leaves the block by SystemExit. Not where somebody else handles it, nor outside of the main thread."""
    if not _can_handle_sigterm():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(SIGTERM_EXIT_CODE))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def signals_ignored() -> Iterator[None]:
    """A second SIGTERM, or Ctrl-C, does not stop the cleaning up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _can_handle_sigterm() -> bool:
    return (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    )
