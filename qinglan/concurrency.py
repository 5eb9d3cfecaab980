"""Helpers that run slow calls concurrently. If one call fails, the others are cancelled."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


async def map_in_order(
    items: Iterable[Item], work: Callable[[Item], Awaitable[Result]], window: int
) -> AsyncIterator[Result]:
    """Yield the result of `work(item)` for each item in order, with up to `window` calls at the same time.

    The first failure is raised at once, and the calls that still run are cancelled.
    """
    pending: deque[asyncio.Task[Result]] = deque()
    failed = asyncio.Event()

    async def run(item: Item) -> Result:
        try:
            return await work(item)
        except Exception:
            failed.set()
            raise

    # Wait for the oldest result and for `alarm`, which ends when any call fails. Without `alarm`, a failure would be
    # raised only after all results before it.
    alarm = asyncio.create_task(failed.wait())
    try:
        for item in items:
            pending.append(asyncio.create_task(run(item)))
            if len(pending) >= window:
                yield await _oldest(pending, alarm)
        while pending:
            yield await _oldest(pending, alarm)
    finally:
        for task in (alarm, *pending):
            task.cancel()
        # Wait for the cancelled tasks, because a task that still ran could use clients that the caller closes next.
        await asyncio.gather(alarm, *pending, return_exceptions=True)


async def _oldest(pending: deque[asyncio.Task[Result]], alarm: asyncio.Task[bool]) -> Result:
    """Return the oldest result when it is ready. If any call fails meanwhile, raise its error at once."""
    await asyncio.wait((pending[0], alarm), return_when=asyncio.FIRST_COMPLETED)
    if alarm.done():
        for task in pending:
            if task.done():
                task.result()
    return await pending.popleft()


async def gather_or_cancel(*work: Coroutine[Any, Any, Result]) -> list[Result]:
    """Run all coroutines and return their results. The first failure cancels the other coroutines and is then raised.

    asyncio.gather would let the other coroutines continue.
    """
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class AsyncClosing:
    """Base class of a client that is closed at the end of an `async with` block."""

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
