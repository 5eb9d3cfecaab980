"""Several at once, and never more in memory than those and one."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

MAX_WORKERS = 4

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_order(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results in the order of the items, each of which is taken only when there is room for it."""
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
    """All of them, in whatever order; after the first failure none is begun any more."""
    with ThreadPoolExecutor(at_once) as pool:
        running = [pool.submit(work, item) for item in items]
        try:
            for done in as_completed(running):
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
