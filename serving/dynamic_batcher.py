"""Batch requests that wait at the same time, and answer each batch in a thread, off the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class DynamicBatcher(Generic[Item, Result]):
    """Calls `answer` with batches of up to `most` waiting items. It never waits for more items to fill a batch."""

    def __init__(self, answer: Callable[[Sequence[Item]], Sequence[Result]], most: int) -> None:
        self._answer, self._most = answer, most
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._working: asyncio.Task[None] | None = None
        # Only one thread, because a second one would share the same cores and delay both answers.
        self._thread = ThreadPoolExecutor(max_workers=1)

    @property
    def waiting(self) -> int:
        """Number of waiting items. Items that are being answered, or whose caller gave up, do not count."""
        return sum(not future.done() for _, future in self._waiting)

    async def ask(self, items: Sequence[Item]) -> list[Result]:
        loop = asyncio.get_running_loop()
        entries = [(item, loop.create_future()) for item in items]
        self._waiting += entries
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return list(await asyncio.gather(*(future for _, future in entries)))  # noqa: TID251 - they fail together

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while waiting := [entry for entry in self._waiting if not entry[1].done()]:
            batch, self._waiting = waiting[: self._most], waiting[self._most :]
            try:
                answers = await loop.run_in_executor(self._thread, self._answer, [item for item, _ in batch])
                answered = list(zip(batch, answers, strict=True))
            except Exception as error:
                # Every caller of the batch gets the error. If this task ended instead, they would wait for ever.
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), answer in answered:
                if not future.done():  # its caller may have hung up
                    future.set_result(answer)
        self._waiting = []
