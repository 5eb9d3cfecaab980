"""The moment by which the answer to a request must be whole.

async with Deadline(30.0).hold(): ...     # a coroutine ends there
with held(Deadline(30.0)): ...            # each wait of a sync client does (sync_deadlines.py)
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

import httpx2


class Deadline:
    """The moment by which an answer must be whole, its head included; never, if `seconds` is None."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._ends = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Seconds that are left; None without a limit."""
        return None if self._ends is None else self._ends - time.monotonic()

    def error(self) -> httpx2.ReadTimeout:
        return httpx2.ReadTimeout(f"the answer was not whole after {self._seconds:g} s")

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """End the block at the deadline, with an httpx2.ReadTimeout."""
        try:
            async with asyncio.timeout(self.left()):
                yield
        except TimeoutError as error:
            raise self.error() from error


_HELD: ContextVar[Deadline | None] = ContextVar("deadline", default=None)
"""The deadline of the answer that this thread reads: httpcore's connections do not know their request."""


def held_deadline() -> Deadline | None:
    """The deadline of the `held` around this call."""
    return _HELD.get()


@contextmanager
def held(deadline: Deadline) -> Iterator[None]:
    """Limit every wait of a sync client for the network inside of this block."""
    token = _HELD.set(deadline)
    try:
        yield
    finally:
        _HELD.reset(token)
