"""Requests that go out by the clock, whether or not the ones before are answered, as users send them."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import httpx


class TimedAnswer(NamedTuple):
    """One answer, and the seconds since its request was due: a late client is no fast server."""

    seconds: float
    status: int
    content: bytes


class Latency(NamedTuple):
    """Waiting time of users."""

    p50_ms: float
    p95_ms: float
    p99_ms: float

    def cells(self) -> list[str]:
        return [f"{value:,.0f}" if value >= 100 else f"{value:.1f}" for value in self]


async def ask_by_the_clock(url: str, bodies: Sequence[bytes], per_second: float) -> list[TimedAnswer]:
    """Post each of the bodies once, `per_second` a second."""
    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=1000, keepalive_expiry=2.0)
    async with httpx.AsyncClient(
        limits=limits, trust_env=False, timeout=60, headers={"content-type": "application/json"}
    ) as http:

        async def send(body: bytes, due: float) -> TimedAnswer:
            answer = await http.post(url, content=body)
            return TimedAnswer(time.perf_counter() - due, answer.status_code, answer.content)

        started, tasks = time.perf_counter(), list[asyncio.Task[TimedAnswer]]()
        for number, body in enumerate(bodies):
            due = started + number / per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(send(body, due)))
        return await asyncio.gather(*tasks)


def latency(answers: Sequence[TimedAnswer]) -> Latency:
    cuts = statistics.quantiles([answer.seconds for answer in answers], n=100)
    return Latency(*(round(cuts[at] * 1000, 2) for at in (49, 94, 98)))
