"""State of the paid services as people see it: the reason why calls wait, and a line in the log for each change."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from qinglan.llm.providers.upstream import RateLimitError, TransientError, UpstreamError

LOG_AGAIN_SECONDS = 60.0
"""Seconds for which an equal problem is not logged again: under a rate limit answers and 429s alternate."""

REASONS = {
    "rate limit": "status 429 (rate limit)",
    "timeout": "no answer in time",
    "connection": "no connection",
    "unreadable": "an answer that is not JSON",
    "no choices": "an answer without a message",
    "interrupted": "an answer that the service broke off",
}
"""Problems in words; other reasons, such as `status 503`, are words already."""

log = logging.getLogger(__name__)


class ServiceStatus:
    """The newest problem of the paid services; an answer ends it."""

    def __init__(self) -> None:
        self._under_way = 0
        self._problem = ""
        self._since = 0.0
        self._logged: dict[str, float] = {}
        """Time of each problem's newest line in the log."""

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request as under way for as long as the block lasts."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def failed(self, failure: UpstreamError) -> None:
        """Note a failure that is retried; other failures end their row or the run, with an error of their own."""
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
        """The reason why calls wait; empty if there is none. `pause`: seconds left of a rate limit's pause."""
        if self._problem == REASONS["rate limit"] and pause:
            return f"{self._problem}; asked again in {pause:.0f} s"
        if self._problem:
            return f"{self._problem}; asked again"
        return f"the service has {self._under_way:,} requests and has not answered yet" if self._under_way else ""
