"""Simulated users of the RAG service. They send questions at a constant rate, however long the answers take."""

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

RequestBody = Mapping[str, Any]
TIMEOUT_SECONDS = 30.0
PLAIN = "plain"


class UserOutcome(NamedTuple):
    """Outcome of one question for its user."""

    status: int
    """HTTP status of the answer; 0 if there was no valid answer."""
    version: str
    """Version of the model that rewrote the question; `plain` if it was not rewritten; empty if `status` is 0."""


class Traffic:
    """Counts of the users' outcomes so far."""

    def __init__(self) -> None:
        self.answers: Counter[UserOutcome] = Counter()

    @property
    def questions(self) -> int:
        return self.answers.total()

    @property
    def errors(self) -> int:
        return sum(count for outcome, count in self.answers.items() if outcome.status != 200)

    def by_version(self) -> dict[str, int]:
        return {
            version: sum(count for outcome, count in self.answers.items() if outcome.version == version)
            for version in sorted({outcome.version for outcome in self.answers if outcome.status == 200})
        }


@contextmanager
def simulated_users(url: str, bodies: Iterable[RequestBody], a_second: float) -> Iterator[Traffic]:
    """Send questions until the block ends, then wait for the last answers."""
    traffic, over = Traffic(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_send_all(url, bodies, a_second, traffic, over)))
    thread.start()
    try:
        yield traffic
    finally:
        over.set()
        thread.join()


async def _send_all(
    url: str, bodies: Iterable[RequestBody], a_second: float, traffic: Traffic, over: threading.Event
) -> None:
    from qinglan.http.http_client import async_client

    loop = asyncio.get_running_loop()
    began, under_way = loop.time(), set[asyncio.Task[None]]()
    async with async_client(timeout=TIMEOUT_SECONDS) as http:
        for number, body in zip(itertools.count(), bodies):
            await asyncio.sleep(began + number / a_second - loop.time())
            if over.is_set():
                break
            task = asyncio.create_task(_send_question(http, url, body, traffic))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)  # noqa: TID251 - none raises


async def _send_question(http: Any, url: str, body: RequestBody, traffic: Traffic) -> None:
    import httpx2

    try:
        response = await http.post(url, json=dict(body))
        data = response.json()["data"] if response.status_code == 200 else {}
        version = str(data.get("rewriter_version") or PLAIN)
        traffic.answers[UserOutcome(response.status_code, version)] += 1
    except (httpx2.HTTPError, ValueError, LookupError, TypeError):
        traffic.answers[UserOutcome(0, "")] += 1
