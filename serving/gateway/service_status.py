"""Report the state of the paid services: why calls wait, and a log line for each change."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from qinglan.llm.providers.upstream import RateLimitError, TransientError, UpstreamError

LOG_AGAIN_SECONDS = 60.0
"""Seconds until the same problem is logged again, because answers and 429s alternate under a rate limit."""

REASONS = {
    "rate limit": "status 429 (rate limit)",
    "timeout": "no answer in time",
    "connection": "no connection",
    "unreadable": "an answer that is not JSON",
    "no choices": "an answer without a message",
    "interrupted": "an answer that the service broke off",
}
"""Text for each reason of a failure; reasons that are missing here, such as `status 503`, are shown as they are."""

log = logging.getLogger(__name__)


class ServiceStatus:
    """Newest problem of the paid services; the next answer clears it."""

    def __init__(self) -> None:
        self._under_way = 0
        self._problem = ""
        self._since = 0.0
        self._logged: dict[str, float] = {}
        """Time of the newest log line about each problem."""

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request as under way for as long as the block lasts."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def failed(self, failure: UpstreamError) -> None:
        """Record a failure that is retried. Other failures are ignored, because they end their row or the run."""
        if not isinstance(failure, RateLimitError | TransientError):
            return
        reason = REASONS.get(failure.reason, failure.reason)
        if reason == self._problem:
            return
        now = time.monotonic()
        self._since = self._since if self._problem else now
        self._problem = reason
        if now - self._logged.get(reason, -LOG_AGAIN_SECONDS) >= LOG_AGAIN_SECONDS:
            self._logged[reason] = now
            wait = ""
            if isinstance(failure, RateLimitError):
                wait = f" (Retry-After: {'none' if failure.wait is None else f'{failure.wait:g} s'})"
            log.warning("%s%s", failure, wait)

    def answered(self, where: str) -> None:
        if self._problem and self._logged.get(self._problem, 0.0) >= self._since:
            log.warning("%s answers again after %.0f s.", where, time.monotonic() - self._since)
        self._problem = ""

    def hold_up(self, pause: float) -> str:
        """Explain why calls wait; "" if none waits. `pause` is the remaining pause of a rate limit in seconds."""
        if self._problem == REASONS["rate limit"] and pause:
            return f"{self._problem}; asked again in {pause:.0f} s"
        if self._problem:
            return f"{self._problem}; asked again"
        return f"the service has {self._under_way:,} requests and has not answered yet" if self._under_way else ""
