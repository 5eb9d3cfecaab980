import asyncio
import re
import time
from collections.abc import Callable
from email.utils import formatdate

import pytest

from qinglan.errors import OutageError
from qinglan.http.http_client import retry_after
from qinglan.llm.config import Limits
from qinglan.llm.limits import CircuitBreaker, RateLimit, RequestThrottle

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


def test_a_pause_holds_everyone_and_then_one_goes_first() -> None:
    async def run() -> list[float]:
        throttle, now = RequestThrottle(Limits()), time.monotonic()
        throttle.rate_limit.refused(0.3, now, now)
        turns = [asyncio.create_task(throttle.turn(10)) for _ in range(5)]
        done, rest = await asyncio.wait(turns, timeout=0.8)
        for task in rest:
            task.cancel()
        return [task.result() - now for task in done]

    (first,) = asyncio.run(run())
    assert first >= 0.3


def served(service: Callable[[float], float | None], seconds: float, calls: int = 10) -> tuple[int, int, str]:
    """Requests, answers and the reason to give up of calls that ask a service, which refuses with a Retry-After
    (a negative one is none) or answers with None. The clock is played."""
    limit, now, requests, answers = RateLimit(120.0), 0.0, 0, 0
    while now < seconds:
        under_way = list[float]()
        while len(under_way) < calls and limit.wait(now) == 0.0:
            under_way.append(now)
        now += 0.05
        requests += len(under_way)
        for sent in under_way:
            if (refusal := service(now)) is None:
                answers += 1
                limit.answered(sent)
            elif reason := limit.refused(refusal if refusal >= 0 else None, sent, now):
                return requests, answers, reason
    return requests, answers, ""


@pytest.mark.parametrize(
    ("retry_after", "most", "reason"),
    [
        (1.0, 130, "refused all 12\\d requests of the last 1\\d\\d s, and its last Retry-After was 1 s"),
        (0.0, 900, "its last Retry-After was 0 s"),
        (-1.0, 16, "refused all 1\\d requests of the last \\d+ s, and it names no Retry-After"),
        (121.0, 1, r"asks for a wait of 121 s \(Retry-After\); gateway.limits.longest_wait_seconds is 120"),
    ],
)
def test_a_service_that_refuses_everything_gets_one_request_for_each_wait_that_it_asks_for(
    retry_after: float, most: int, reason: str
) -> None:
    requests, answers, given_up = served(lambda _: retry_after, 600)

    assert answers == 0
    assert requests - 9 <= most, "ten were under way when it began"
    assert re.search(reason, given_up), given_up


def test_a_service_that_answers_again_is_asked_at_full_speed_soon() -> None:
    requests, answers, reason = served(lambda now: 1.0 if now < 30 else None, 40)

    assert not reason
    assert requests - answers <= 40
    assert answers > 10 * 5 * 20, "ten at a time, twenty times a second, within half of the rest"


def test_a_service_that_answers_now_and_then_is_never_given_up() -> None:
    taken = [0.0]

    def once_in_40_seconds(now: float) -> float | None:
        if now - taken[0] < 40:
            return 5.0
        taken[0] = now
        return None

    requests, answers, reason = served(once_in_40_seconds, 1_000)

    assert (reason, answers > 20) == ("", True)
    assert requests < 300


def test_an_answer_from_before_the_pause_does_not_end_it() -> None:
    limit = RateLimit(120.0)
    limit.refused(20.0, sent=1.0, now=2.0)
    limit.answered(sent=1.5)

    assert limit.wait(3.0) == 19.0
    assert not limit.refused(None, sent=1.6, now=3.0)
    assert limit.left(3.0) == 19.0


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
