"""Run work on several items at once."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

MAX_WORKERS = 4

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_order(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Run `work` on several items at once, and yield the results in the order of the items.

    Items are read only as workers become free.
    """
    pool, running = ThreadPoolExecutor(MAX_WORKERS), deque[Future[Result]]()
    try:
        for item in items:
            if len(running) == MAX_WORKERS:
                yield running.popleft().result()
            running.append(pool.submit(work, item))
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def run_each(work: Callable[[Item], object], items: Iterable[Item], at_once: int = MAX_WORKERS) -> None:
    """Run `work` on all items, in any order. After the first failure no further item is started."""
    with ThreadPoolExecutor(at_once) as pool:
        running = [pool.submit(work, item) for item in items]
        try:
            for done in as_completed(running):
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
