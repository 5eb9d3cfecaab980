"""Slow calls run together, end in order, and stop together."""

import asyncio

import pytest

from qinglan.concurrency import gather_or_cancel, map_in_order


async def collect(delays: list[float], window: int) -> tuple[list[int], int]:
    at_once = most = 0

    async def work(numbered: tuple[int, float]) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(numbered[1])
        at_once -= 1
        return numbered[0]

    results = [result async for result in map_in_order(enumerate(delays), work, window)]
    return results, most


def test_results_keep_the_order_of_the_input() -> None:
    results, most = asyncio.run(collect([0.03, 0.0, 0.02, 0.01, 0.0], window=3))

    assert results == [0, 1, 2, 3, 4]
    assert most == 3


def test_the_first_failure_ends_all_at_once() -> None:
    cancelled = []

    async def work(number: int) -> int:
        if number == 1:
            raise ValueError("no answer")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return number

    async def run() -> None:
        async for _ in map_in_order(range(4), work, 4):
            raise AssertionError("no result can come before the failure")

    with pytest.raises(ValueError, match="no answer"):
        asyncio.run(asyncio.wait_for(run(), 5))
    assert sorted(cancelled) == [0, 2, 3]


def test_together_leaves_nothing_running_when_one_fails() -> None:
    ended = []

    async def slow() -> int:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("slow")
        return 1

    async def failing() -> int:
        await asyncio.sleep(0)
        raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        asyncio.run(asyncio.wait_for(gather_or_cancel(slow(), failing()), 5))
    assert ended == ["slow"]
