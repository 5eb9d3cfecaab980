"""One call asked live and by batch at once: it is paid for once, and who asked gets the answer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from qinglan.errors import OutageError
from qinglan.llm.client import Answer, GatewayClient
from standins.teacher.app import create_app
from standins.teacher.config import Behaviour
from tests.echo import EchoBrain, gateway, running
from tests.serving.gateway.batching import Asked, ask_rows, batched, messages, stats

pytestmark = pytest.mark.slow

ROW = "1"


class Limiting:
    """A service whose first live call has to wait."""

    def __init__(self, app: Any, seconds: float) -> None:
        self._app, self._seconds = app, seconds
        self.limited = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.limited.is_set() or scope["path"] != "/v1/chat/completions":
            await self._app(scope, receive, send)
            return
        self.limited.set()
        headers = [(b"retry-after-ms", str(int(1000 * self._seconds)).encode())]
        await send({"type": "http.response.start", "status": 429, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})


async def live(url: str) -> Asked:
    async with GatewayClient(url, "generate") as client:
        [found] = await asyncio.gather(client.ask("teacher", messages(ROW), row=ROW), return_exceptions=True)
        return found


async def limited(service: Limiting) -> None:
    while not service.limited.is_set():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)


def test_what_a_live_call_waits_to_send_is_not_queued_for_a_batch(tmp_path: Path) -> None:
    async def run(teacher: str) -> tuple[Asked, list[Asked]]:
        async with gateway(batched(teacher, {"steps": ["validate"]}), tmp_path) as url:
            asked = asyncio.create_task(live(url))
            await limited(service)
            other = await ask_rows(url, [ROW], "validate")
            return await asked, other

    service = Limiting(create_app(EchoBrain(), Behaviour()), 1.0)
    with running(service) as teacher:
        first, [second] = asyncio.run(run(teacher))
        assert (stats(teacher)["billed"], stats(teacher)["batches"]) == (1, 0)
    assert isinstance(first, Answer)
    assert isinstance(second, Answer)
    assert (first.text, second.cached) == (second.text, True)


@pytest.mark.parametrize(("takes", "waits", "brought"), [(0.0, 8.0, True), (8.0, 4.0, False)])
def test_a_live_call_that_had_to_wait_is_not_sent_when_a_batch_has_it(
    tmp_path: Path, takes: float, waits: float, brought: bool
) -> None:
    """Told to wait before the batch leaves, after two seconds; it wakes long after or long before the batch's end."""

    async def run(teacher: str) -> tuple[Asked, list[Asked]]:
        batch = {"steps": ["validate"], "gather_seconds": 2.0}
        config = batched(teacher, batch, limits={"longest_wait_seconds": 10.0})
        async with gateway(config, tmp_path) as url:
            announced = asyncio.create_task(ask_rows(url, [ROW], "validate"))
            await asyncio.sleep(0.2)  # it is in the queue, and in no batch yet
            return await live(url), await announced

    service = Limiting(create_app(EchoBrain(), Behaviour(batch_seconds=takes)), waits)
    with running(service) as teacher:
        first, [second] = asyncio.run(run(teacher))
        assert (stats(teacher)["billed"], stats(teacher)["batches"]) == (1, 1)
    assert isinstance(second, Answer)
    if brought:
        assert isinstance(first, Answer)
        assert first.text == second.text
    else:
        assert isinstance(first, OutageError)
        assert "paid twice" in str(first)
