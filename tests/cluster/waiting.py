"""Waiting for what other processes do."""

import time
from collections.abc import Callable

GUARD_SECONDS = 600.0
"""Against hanging for ever, and no promise: a busy machine takes minutes for what usually takes a moment."""


def until(
    true: Callable[[], object], what: str | Callable[[], str] = "it is so", seconds: float = GUARD_SECONDS
) -> None:
    """Wait until it is true; the error has `what`, or what `what` returns then."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:.0f} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.05)
