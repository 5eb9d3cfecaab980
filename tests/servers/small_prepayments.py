"""Prepayments in small: requests of a stage, a service that meddles with its own answers, and pauses of a moment."""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from commands.prepay.prepay import MOST_ROWS, Prepayment, Quote, prepay
from qinglan.llm.batch import runner as batch_runner
from qinglan.llm.call_plan import PaidRequest
from qinglan.llm.client import Answer, GatewayClient
from qinglan.llm.config import GatewayConfig
from qinglan.llm.paid.journal import Entry
from standins.teacher.app import create_app
from standins.teacher.config import Behaviour
from tests.servers.echo_servers import EchoBrain, gateway, gateway_config

Edit = Callable[[int, bytes], tuple[int, bytes]]


class Meddled:
    """A service some of whose answers are changed on their way, the first so many that a pattern finds."""

    def __init__(
        self, app: Any, request: str, edit: Edit, times: int = 10**6, acts: bool = True, before: bool = False
    ) -> None:
        self._app, self._request, self._edit = app, re.compile(request), edit
        self._acts, self._before, self.left = acts, before, times

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if not (self.left and self._request.fullmatch(f"{scope['method']} {scope['path']}")):
            await self._app(scope, receive, send)
            return
        self.left -= 1
        if self._before:
            await asyncio.to_thread(self._edit, 0, b"")
        body, status = bytearray(), [200]

        async def collect(message: Any) -> None:
            status[0] = message.get("status", status[0])
            body.extend(message.get("body", b""))

        if self._acts:
            await self._app(scope, receive, collect)
        code, content = await asyncio.to_thread(self._edit, status[0], bytes(body))
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": content})


def fails(status: int, message: str = "No such thing.", code: str = "") -> Edit:
    body = orjson.dumps({"error": {"message": message, "code": code or None}})
    return lambda _status, _body: (status, body)


def in_json(change: Callable[[Any], Any]) -> Edit:
    """Change an answer of one JSON value."""

    def edit(status: int, body: bytes) -> tuple[int, bytes]:
        value = orjson.loads(body)
        return status, orjson.dumps(change(value) or value)

    return edit


def echoing(**behaviour: Any) -> Any:
    return create_app(EchoBrain(), Behaviour(**behaviour))


@contextmanager
def short_pauses(seconds: float = 0.02, patience: float = 30.0) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_runner, "FIRST_PAUSE", seconds)
        patch.setattr(batch_runner, "LONGEST_PAUSE", seconds)
        patch.setattr(batch_runner, "PATIENCE_SECONDS", patience)
        yield


def messages(row: str) -> list[Any]:
    """Messages of a row; rows that differ after a slash have the same ones."""
    return [{"role": "user", "content": f"问题 {row.split('/')[0]}"}]


def requests(rows: Iterable[str]) -> Iterator[PaidRequest]:
    return (PaidRequest(Entry("generate", row, "teacher"), messages(row)) for row in rows)


def pay_ahead(
    teacher: str | GatewayConfig, folder: Path, rows: Iterable[str], most_rows: int = MOST_ROWS,
    approve: Callable[[Quote], bool] = lambda _: True,
) -> Prepayment:  # fmt: skip
    """Prepay the rows' requests into the folder's journal."""
    config = gateway_config(teacher) if isinstance(teacher, str) else teacher
    prepayment = asyncio.run(prepay(requests(rows), config, folder / "journal.sqlite", approve, most_rows))
    assert prepayment is not None
    return prepayment


def ask_live(teacher: str, folder: Path, rows: Iterable[str]) -> tuple[list[Answer], dict[str, Any]]:
    """Return the answers that a stage gets afterwards, with the journal's report."""

    async def run() -> tuple[list[Answer], dict[str, Any]]:
        async with gateway(gateway_config(teacher), folder) as url, GatewayClient(url, "generate") as client:
            asks = (client.ask("teacher", messages(row), row=row) for row in rows)
            answers = list(await asyncio.gather(*asks))
            return answers, await client.report()

    return asyncio.run(run())


def texts(answers: Iterable[Answer]) -> list[str]:
    return [answer.text for answer in answers]


def echoes(rows: Iterable[str]) -> list[str]:
    return [f"回声 {messages(row)[0]['content']}" for row in rows]


def stats(teacher: str) -> dict[str, Any]:
    result: dict[str, Any] = httpx.get(f"{teacher}/stats", trust_env=False).json()
    return result


def outcomes(folder: Path) -> dict[str, int]:
    """How the attempts ended."""
    with closing(sqlite3.connect(folder / "journal.sqlite")) as database:
        return dict(database.execute("SELECT outcome, count(*) FROM attempts GROUP BY outcome"))
