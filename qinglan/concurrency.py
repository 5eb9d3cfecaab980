"""Runs many slow calls at once. Results come in the order of the input, with a limited number of calls in memory."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


async def map_in_order(
    items: Iterable[Item], work: Callable[[Item], Awaitable[Result]], window: int
) -> AsyncIterator[Result]:
    """Yield work(item) for each item in order; the first failure cancels the calls under way and is raised."""
    pending: deque[asyncio.Task[Result]] = deque()
    failed = asyncio.Event()

    async def run(item: Item) -> Result:
        try:
            return await work(item)
        except Exception:
            failed.set()
            raise

    # The oldest result is awaited together with the alarm. Else a failure would be raised only after all results
    # before it.
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
        # Cancelled tasks are awaited: one that still ran would use clients that the caller closes next.
        await asyncio.gather(alarm, *pending, return_exceptions=True)


async def _oldest(pending: deque[asyncio.Task[Result]], alarm: asyncio.Task[bool]) -> Result:
    """Wait for the oldest result. If a newer call fails meanwhile, its error is raised at once."""
    await asyncio.wait((pending[0], alarm), return_when=asyncio.FIRST_COMPLETED)
    if alarm.done():
        for task in pending:
            if task.done():
                task.result()
    return await pending.popleft()


async def gather_or_cancel(*work: Coroutine[Any, Any, Result]) -> list[Result]:
    """Run all coroutines and return their results; the first failure cancels the others before it is raised.

    asyncio.gather would let the others run on.
    """
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class AsyncClosing:
    """A client that `async with` closes."""

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
