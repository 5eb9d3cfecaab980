"""Time for measuring durations: setting the system clock while a process runs does not change the result.

steady_time()       seconds since the epoch, counted by this process
how_long(span)      a span of time for people: 12 min, 3.5 h, 41.0 d
"""

import time
from datetime import timedelta

_EPOCH = time.time() - time.monotonic()


def steady_time() -> float:
    """Seconds since the epoch: the system clock when this process started, plus the monotonic time since then."""
    return _EPOCH + time.monotonic()


def how_long(span: timedelta) -> str:
    """Format a span of time for people, such as `12 min`; the sign is dropped."""
    minutes = abs(span.total_seconds()) / 60
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h" if minutes < 72 * 60 else f"{minutes / 1440:,.1f} d"
