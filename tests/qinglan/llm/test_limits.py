import asyncio
import time
from email.utils import formatdate

import pytest

from qinglan.errors import OutageError
from qinglan.http_client import retry_after
from qinglan.llm.config import Limits
from qinglan.llm.limits import CircuitBreaker, RequestThrottle, rate_limiter

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": formatdate(NOW + 30, usegmt=True)}, 30.0),
        ({"retry-after": formatdate(NOW - 30, usegmt=True)}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after(headers, NOW) == expected


def test_no_more_than_the_limit_hold_a_slot_at_once() -> None:
    async def run() -> int:
        pace, at_once, most = RequestThrottle(Limits(concurrency=3)), 0, 0

        async def hold() -> None:
            nonlocal at_once, most
            async with pace.slot():
                at_once += 1
                most = max(most, at_once)
                await asyncio.sleep(0)
                at_once -= 1

        await asyncio.gather(*(hold() for _ in range(20)))
        return most

    assert asyncio.run(run()) == 3


@pytest.mark.parametrize(("per_minute", "at_once"), [(600, 10), (30, 1)])
def test_a_minutes_requests_do_not_leave_in_its_first_second(per_minute: int, at_once: int) -> None:
    async def run() -> int:
        limiter, taken = rate_limiter(per_minute, 1.0), 0
        while limiter.has_capacity():
            await limiter.acquire()
            taken += 1
        return taken

    assert asyncio.run(run()) == at_once


def test_a_pause_holds_everyone() -> None:
    async def run() -> list[float]:
        pace = RequestThrottle(Limits())
        pace.pause(0.3)
        until = time.monotonic() + 0.3

        async def turn() -> float:
            await pace.turn(10)
            return time.monotonic() - until

        return await asyncio.gather(*(turn() for _ in range(5)))

    assert all(late >= 0 for late in asyncio.run(run()))


def test_a_call_of_more_tokens_than_the_limit_allows_at_once_still_gets_its_turn() -> None:
    async def turn() -> bool:
        await asyncio.wait_for(RequestThrottle(Limits(tokens_per_minute=60)).turn(1_000_000), 5)
        return True

    assert asyncio.run(turn())


def test_failures_in_a_row_open_the_breaker_and_an_answer_between_them_does_not() -> None:
    breaker = CircuitBreaker(outage_after=3, probe_every=60)
    for _ in range(2):
        breaker.failed("status 500")
    breaker.answered()
    for _ in range(2):
        breaker.failed("status 500")
    breaker.check()
    breaker.failed("status 503")
    with pytest.raises(OutageError, match=r"last 3 calls all failed; the newest: status 503"):
        breaker.check()


def test_a_single_probe_call_ends_an_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("qinglan.llm.limits.time.monotonic", lambda: now[0])
    breaker = CircuitBreaker(outage_after=1, probe_every=30)
    breaker.trip("no credit left")
    with pytest.raises(OutageError, match="no credit left"):
        breaker.check()
    now[0] += 30
    breaker.check()
    with pytest.raises(OutageError):
        breaker.check()
    breaker.answered()
    breaker.check()
