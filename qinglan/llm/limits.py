"""Rate limits of a run: concurrent calls, requests and tokens per minute, and pauses that the service asks for.

The circuit breaker is here too: it stops a run that gets no answers.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiolimiter import AsyncLimiter

from qinglan.errors import OutageError
from qinglan.llm.config import Limits

BURST_SECONDS = 1.0
TOKEN_BURST_SECONDS = 10.0
PROBE_SECONDS = 30.0


class RequestThrottle:
    """Rate limits that all calls of a run share."""

    def __init__(self, limits: Limits) -> None:
        self._slots = asyncio.Semaphore(limits.concurrency)
        self._requests = rate_limiter(limits.requests_per_minute, BURST_SECONDS)
        self._tokens = rate_limiter(limits.tokens_per_minute, TOKEN_BURST_SECONDS)
        self._not_before = 0.0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold one of the concurrent calls, also between the tries of a call."""
        async with self._slots:
            yield

    async def turn(self, tokens: int) -> None:
        """Wait until a request of about `tokens` tokens may be sent."""
        await self._requests.acquire()
        await self._tokens.acquire(min(tokens, self._tokens.max_rate))
        while (wait := self._not_before - time.monotonic()) > 0:  # noqa: ASYNC110
            # Spread out a little, so that waiting calls do not all return in the same instant.
            await asyncio.sleep(wait * random.uniform(1.0, 1.1))

    def pause(self, seconds: float) -> None:
        """Send nothing for these seconds: the service asked for it."""
        self._not_before = max(self._not_before, time.monotonic() + seconds)


def rate_limiter(per_minute: int, burst_seconds: float) -> AsyncLimiter:
    """An even limit per minute: a burst holds as many as fall in its seconds, and at least one."""
    burst = max(1.0, per_minute * burst_seconds / 60)
    return AsyncLimiter(burst, burst * 60 / per_minute)


class CircuitBreaker:
    """Opens after many failures in a row; then one call in a while probes if the service answers again."""

    def __init__(self, outage_after: int, probe_every: float = PROBE_SECONDS) -> None:
        self._outage_after = outage_after
        self._probe_every = probe_every
        self._failures = 0
        self._next_probe = 0.0
        self.outage = ""
        """The reason why it is open; empty while it is closed."""

    def check(self) -> None:
        """Raise during an outage, unless this call is the next probe."""
        if not self.outage:
            return
        if (now := time.monotonic()) < self._next_probe:
            raise OutageError(self.outage)
        self._next_probe = now + self._probe_every

    def answered(self) -> None:
        self._failures, self.outage = 0, ""

    def failed(self, why: str) -> None:
        """Count a call that failed for good."""
        self._failures += 1
        if self._failures >= self._outage_after:
            self.trip(
                f"The last {self._failures} calls all failed; the newest: {why} "
                "See what the service says, then run again: what was paid for is in the journal."
            )

    def trip(self, why: str) -> None:
        """Open at once, for a failure that proves an outage by itself."""
        self.outage = why
        self._next_probe = time.monotonic() + self._probe_every
