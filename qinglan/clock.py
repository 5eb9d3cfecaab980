"""The time of day for durations: a clock that is set while a process runs moves nothing.

steady_time()       seconds since the epoch, as this process counts them
how_long(span)      a span of time for people: 12 min, 3.5 h, 41.0 d
"""

import time
from datetime import timedelta

_EPOCH = time.time() - time.monotonic()


def steady_time() -> float:
    """Seconds since the epoch: the clock's at the start of this process, and from then on by the monotonic clock."""
    return _EPOCH + time.monotonic()


def how_long(span: timedelta) -> str:
    """A span of time for people, without a sign."""
    minutes = abs(span.total_seconds()) / 60
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h" if minutes < 72 * 60 else f"{minutes / 1440:,.1f} d"
