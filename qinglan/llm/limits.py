"""Rate limits of a run: concurrent calls, requests and tokens per minute, and pauses that a service asks for.

The circuit breaker is here too: it stops a run that gets no answers.
"""

import asyncio
import time

from aiolimiter import AsyncLimiter

from qinglan.errors import OutageError
from qinglan.llm.config import Limits

BURST_SECONDS = 1.0
TOKEN_BURST_SECONDS = 10.0
PROBE_SECONDS = 30.0

RATE_LIMIT_PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds of consecutive pauses after a 429 without a Retry-After; the last pause is repeated."""

SHORTEST_PAUSE = 0.1
"""Shortest pause in seconds: a Retry-After may name 0 seconds, or a time in the past."""

FIRST_GAP, SHORTEST_GAP = 1.0, 0.02
"""Seconds between two requests after a pause. The gap begins at FIRST_GAP, and each answer halves it; once it is at
most SHORTEST_GAP, the next answer ends it."""


class RateLimit:
    """Rate limit of the paid services. After a 429 all calls pause; then they are sent one by one.

    Each answer halves the gap between two requests, and each new 429 pauses all calls again. So a service that still
    refuses gets about one request per pause.
    """

    def __init__(self, longest_wait: float) -> None:
        self._longest_wait = longest_wait
        self._resume = 0.0
        """End of the newest pause."""

        self._next = 0.0
        """Earliest time of the next request."""

        self._gap = 0.0
        self._start_over()

    def _start_over(self) -> None:
        self._since, self._pauses, self._refusals = 0.0, 0, 0

    def wait(self, now: float) -> float:
        """Return the seconds until a request may be sent. If it is 0, the request counts as sent now."""
        if now < self._next:
            return self._next - now
        self._next = now + self._gap
        return 0.0

    def left(self, now: float) -> float:
        return max(0.0, self._resume - now)

    def answered(self, sent: float) -> None:
        """Reset the count of refusals. Halve the gap too, if the answered request was sent after the pause."""
        self._start_over()
        # Halving the gap reaches the configured rate again after about six answers (1 s to 0.02 s).
        if sent >= self._resume:
            self._gap = self._gap / 2 if self._gap > SHORTEST_GAP else 0.0

    def refused(self, retry_after: float | None, sent: float, now: float) -> str:
        """Pause all requests after a 429 to a request that was sent at `sent`. Returns the reason to give up if the
        wait would be too long, otherwise an empty text."""
        self._since = self._since or sent
        self._refusals += 1
        if sent >= self._resume:  # else it was sent before this pause, and is part of the same refusal
            self._pauses += 1
        pause = RATE_LIMIT_PAUSES[min(max(self._pauses, 1), len(RATE_LIMIT_PAUSES)) - 1]
        if retry_after is not None:
            pause = max(retry_after, SHORTEST_PAUSE)
        waited = now - self._since
        if pause > self._longest_wait or waited + pause > self._longest_wait:
            refusals = self._refusals
            self._start_over()
            if pause > self._longest_wait:
                return (
                    f"It asks for a wait of {pause:,.0f} s (Retry-After); gateway.limits.longest_wait_seconds is "
                    f"{self._longest_wait:g}. Run again after that time, or raise the setting."
                )
            named = (
                "it names no Retry-After" if retry_after is None else f"its last Retry-After was {retry_after:g} s"
            )
            return (
                f"It has refused all {refusals:,} requests of the last {waited:,.0f} s, and {named}. Run again "
                "later, or lower gateway.limits.requests_per_minute or tokens_per_minute."
            )
        self._gap, self._resume = FIRST_GAP, max(self._resume, now + pause)
        self._next = max(self._next, self._resume)
        return ""


class RequestThrottle:
    """Rate limits that all calls of a run share."""

    def __init__(self, limits: Limits) -> None:
        self.slots = asyncio.Semaphore(limits.concurrency)
        """Slots of the concurrent calls. A call holds its slot also while it waits between two tries."""

        self._requests = rate_limiter(limits.requests_per_minute, BURST_SECONDS)
        self._tokens = rate_limiter(limits.tokens_per_minute, TOKEN_BURST_SECONDS)
        self.rate_limit = RateLimit(limits.longest_wait_seconds)

    async def turn(self, tokens: int) -> float:
        """Wait until a request of about `tokens` tokens may be sent; returns the monotonic time of that moment."""
        await self._requests.acquire()
        await self._tokens.acquire(min(tokens, self._tokens.max_rate))
        while (wait := self.rate_limit.wait(now := time.monotonic())) > 0:  # noqa: ASYNC110
            await asyncio.sleep(wait)
        return now


def rate_limiter(per_minute: int, burst_seconds: float) -> AsyncLimiter:
    """Create a limiter that spreads a limit per minute evenly. A burst may use the share of `burst_seconds`, at least
    1."""
    burst = max(1.0, per_minute * burst_seconds / 60)
    return AsyncLimiter(burst, burst * 60 / per_minute)


class CircuitBreaker:
    """Opens after `outage_after` consecutive failures. Then one call every `probe_every` seconds is let through, to
    probe if the service answers again."""

    def __init__(self, outage_after: int, probe_every: float = PROBE_SECONDS) -> None:
        self._outage_after = outage_after
        self._probe_every = probe_every
        self._failures = 0
        self._next_probe = 0.0
        self.outage = ""
        """Reason why the breaker is open; empty while it is closed."""

    def check(self) -> None:
        """Raise an OutageError while the breaker is open, unless this call is the next probe."""
        if not self.outage:
            return
        if (now := time.monotonic()) < self._next_probe:
            raise OutageError(self.outage)
        self._next_probe = now + self._probe_every

    def answered(self) -> None:
        self._failures, self.outage = 0, ""

    def failed(self, why: str) -> None:
        """Count a call that failed after all its tries."""
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
