"""A clock for measuring durations. Its time does not jump if the system clock is set while the process runs.

steady_time()       seconds since the epoch, counted by this process
how_long(span)      format a span of time for people: 12 min, 3.5 h, 41.0 d
"""

import time
from datetime import timedelta

_EPOCH = time.time() - time.monotonic()


def steady_time() -> float:
    """Return the seconds since the epoch, as the system clock's time at the start of this process plus the monotonic
    time since."""
    return _EPOCH + time.monotonic()


def how_long(span: timedelta) -> str:
    """Format a span of time for people, such as `12 min`; the sign is dropped."""
    minutes = abs(span.total_seconds()) / 60
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h" if minutes < 72 * 60 else f"{minutes / 1440:,.1f} d"
