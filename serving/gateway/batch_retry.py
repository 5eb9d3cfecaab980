"""How long a batch's service is asked: until it answers, since what is under way was paid for.

Whoever waits hears of an outage. A batch is given up only when somebody has set its role live, and only where the
service says that nothing will come, or has had the whole day that a batch may take.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from qinglan.llm.batch_journal import Batch
from qinglan.llm.upstream import (
    FatalUpstreamError,
    RateLimitError,
    RejectedRequestError,
    TransientError,
    UpstreamError,
)

log = logging.getLogger("serving.gateway.batches")

FIRST_PAUSE = 0.5
BATCH_DEADLINE_SECONDS = 25 * 3600.0
"""A service ends a batch within 24 hours; an hour later it is not going to."""

Result = TypeVar("Result")


class BatchAbandoned(Exception):
    """Nobody waits for the batch any more; its rows may have been billed."""


class BatchRetry:
    """One role's. `held_up` is told what whoever waits should hear, `well` when it is over."""

    def __init__(
        self,
        attempts: int,
        poll_seconds: float,
        live: bool,
        held_up: Callable[[Batch, UpstreamError], None],
        well: Callable[[], None],
    ) -> None:
        self._attempts, self._poll, self._live = attempts, poll_seconds, live
        self._held_up, self._well = held_up, well

    @property
    def looks(self) -> int:
        """How often what ought to be there is looked for before it counts as missing."""
        return self._attempts

    async def between_looks(self) -> None:
        await asyncio.sleep(self._poll)

    async def insist(self, batch: Batch, work: Callable[[], Awaitable[Result]], refusable: bool = False) -> Result:
        """What the service answers at last. Only an upload or a creation can be refused: nothing was there before."""
        failures, pause = 0, min(FIRST_PAUSE, self._poll)
        while True:
            try:
                found = await work()
            except OSError as error:
                failure: UpstreamError = TransientError(
                    "disk", f"batch {batch.name[:8]}: its file cannot be written ({error})."
                )
            except UpstreamError as unanswered:
                failure = unanswered
            else:
                if failures:
                    self._well()
                return found
            failures += 1
            if refusable and isinstance(failure, FatalUpstreamError | RejectedRequestError):
                raise failure
            self._bear(batch, failure, failures)
            asked_for = failure.wait if isinstance(failure, RateLimitError) else None
            await asyncio.sleep(max(pause, asked_for or 0.0))
            pause = min(2 * pause, max(self._poll, FIRST_PAUSE))

    def bear_with(self, batch: Batch, what: str) -> None:
        """The service answers, and yet there is something to be told."""
        self._bear(batch, TransientError("odd", what), self._attempts)

    def _bear(self, batch: Batch, failure: UpstreamError, failures: int) -> None:
        for_good = isinstance(failure, FatalUpstreamError | RejectedRequestError)
        often = failures >= self._attempts
        if often and self._live and (for_good or is_overdue(batch, time.time())):
            raise BatchAbandoned(str(failure))
        log.warning("batch %s of %s: %s", batch.name[:8], batch.role, failure)
        if often or (for_good and not self._live):
            self._held_up(batch, failure)


def is_overdue(batch: Batch, now: float) -> bool:
    return now - batch.made_at > BATCH_DEADLINE_SECONDS
