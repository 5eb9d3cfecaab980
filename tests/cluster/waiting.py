"""Waiting for what other processes do."""

import time
from collections.abc import Callable

GUARD_SECONDS = 600.0
"""Against hanging for ever, and no promise: a busy machine takes minutes for what usually takes a moment."""


def until(true: Callable[[], object], what: str = "it came to be", seconds: float = GUARD_SECONDS) -> None:
    """`what` is told where it never comes true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.05)
