"""A provider that hangs is told from one that works."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from qinglan.llm import waiting_calls
from qinglan.llm.client import GatewayClient
from qinglan.llm.contract import WAITS_PATH
from qinglan.llm.waiting_calls import waiting_line
from tests.servers.echo_servers import Reply, Scripted, completion, running


@pytest.mark.parametrize(
    ("sent", "answered", "line"),
    [
        ([], 0.0, ""),
        ([95.0], 0.0, ""),
        ([20.0] * 10, 99.0, ""),
        ([20.0] * 10, 0.0, "[generate] 10 calls wait, the oldest for 80 s"),
        ([20.0, 99.0], 60.0, "[generate] 2 calls wait, the oldest for 80 s"),
        ([84.0], 30.0, "[generate] 1 call waits, for 16 s"),
        ([20.0] * 1_200, 85.0, "[generate] 1,200 calls wait, the oldest for 80 s"),
    ],
)
def test_calls_are_told_once_no_answer_has_come_for_long(sent: list[float], answered: float, line: str) -> None:
    assert waiting_line("generate", sent, answered, 100.0) == line


class Slow(Scripted):
    """A gateway whose answer takes three seconds, and that says why."""

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        await asyncio.sleep(0.0 if scope["path"] == WAITS_PATH else 3.0)
        await super().__call__(scope, receive, send)

    def _next(self, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        return self.replies[path == WAITS_PATH]


@pytest.mark.parametrize(
    ("waits", "shown"),
    [
        (Reply(200, b'{"reason": "status 429 (rate limit); asked again in 8 s"}'), " s: status 429 (rate limit);"),
        (Reply(503, b"{}"), " s\n"),
    ],
)
def test_a_provider_that_hangs_is_named_with_its_reason_while_it_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], waits: Reply, shown: str
) -> None:
    monkeypatch.setattr(waiting_calls, "SILENT_SECONDS", 0.2)

    async def ask(url: str) -> None:
        async with GatewayClient(url, "generate") as gateway:
            await asyncio.gather(*(gateway.ask("teacher", [], row=str(n)) for n in range(3)))
            lines.append(capsys.readouterr().out)
            await asyncio.sleep(0.5)

    lines = list[str]()
    with running(Slow(Reply(200, completion("答"), {"x-qinglan-call": "c"}), waits)) as url:
        asyncio.run(ask(url))
    assert "[generate] 3 calls wait, the oldest for " in lines[0]
    assert shown in lines[0]
    assert capsys.readouterr().out == "", "nothing waits any more"
