"""Turn SIGTERM into an exception, so that `finally` blocks end started processes and jobs."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SIGTERM_EXIT_CODE = 143


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Raise SystemExit at SIGTERM within the block, unless another handler is set or this is not the main thread."""
    is_main = threading.current_thread() is threading.main_thread()  # signal.signal raises in other threads
    if not is_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(SIGTERM_EXIT_CODE))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def signals_ignored() -> Iterator[None]:
    """Ignore SIGTERM and Ctrl-C within the block, because a second signal would stop the cleanup."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
