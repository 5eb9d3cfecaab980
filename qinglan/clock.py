"""The time of day for durations: a clock that is set while a process runs moves nothing.

steady_time()       seconds since the epoch, as this process counts them
"""

import time

_EPOCH = time.time() - time.monotonic()


def steady_time() -> float:
    """Seconds since the epoch: the clock's at the start of this process, and from then on by the monotonic clock."""
    return _EPOCH + time.monotonic()
