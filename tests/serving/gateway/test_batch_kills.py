"""A gateway killed at every point of a batch's life: nothing is paid twice, nothing is lost."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from qinglan.errors import OutageError
from qinglan.llm.client import GatewayClient
from qinglan.llm.journal_reader import read_report
from standins.teacher.app import create_app
from standins.teacher.config import Behaviour
from tests.echo import EchoBrain, GatewayProcess, Reply, Scripted, gateway, gateway_config, running
from tests.serving.gateway.batching import Asked, ask_rows, batched, echoes, messages, run_rows, stats, texts

ROWS = [str(number) for number in range(30)]
MANY = [str(number) for number in range(600)]
"""Their answers come in several pieces."""


class Struck:
    """A service before which lightning strikes once: as a request arrives, or when it is done and nobody hears."""

    def __init__(self, app: Any, method: str, path: str, when: str) -> None:
        self._app, self._method, self._path, self._when = app, method, path, when
        self.strike: Callable[[], None] = lambda: None
        self.struck = False

    def _hits(self, scope: Any) -> bool:
        return not self.struck and scope["method"] == self._method and self._path_is(scope["path"])

    def _path_is(self, path: str) -> bool:
        pattern, parts = self._path.split("/"), path.split("/")
        return len(pattern) == len(parts) and all(
            one in ("*", part) for one, part in zip(pattern, parts, strict=True)
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if not self._hits(scope):
            await self._app(scope, receive, send)
            return
        if self._when == "before":
            await asyncio.to_thread(self._now)

        async def late(message: Any) -> None:
            if self._when == "after" and not self.struck:
                await asyncio.to_thread(self._now)
            await send(message)
            if self._when == "amid" and message.get("body"):
                await asyncio.to_thread(self._now)

        await self._app(scope, receive, late)

    def _now(self) -> None:
        if not self.struck:
            self.struck = True
            self.strike()


async def until_created(client: GatewayClient) -> None:
    """Until the service has a batch of ours."""
    while not [one for one in (await client.report())["batches"] if one["batch"]]:
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "when", "files"),
    [
        ("POST", "/v1/files", "before", 3),  # reserved, and not yet uploaded: what was cut off is a file of its own
        ("POST", "/v1/files", "after", 3),  # uploaded, and nobody heard
        ("POST", "/v1/batches", "before", 2),  # uploaded, not created
        ("POST", "/v1/batches", "after", 2),  # created, and nobody heard
        ("GET", "/v1/batches/*", "before", 2),  # polled
        ("GET", "/v1/files/*/content", "before", 2),  # ended
        ("GET", "/v1/files/*/content", "amid", 2),  # read in part
    ],
)
def test_killed_at_any_point_of_a_batch_each_row_is_paid_once_and_answered(
    tmp_path: Path, method: str, path: str, when: str, files: int
) -> None:
    service = Struck(create_app(EchoBrain(), Behaviour(batch_seconds=0.1)), method, path, when)
    rows = MANY if when == "amid" else ROWS

    async def run(config: Any) -> list[Asked]:
        first = GatewayProcess(config, tmp_path)
        url = first.url()
        service.strike = first.kill
        asked = asyncio.create_task(ask_rows(url, rows))
        while not service.struck:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        second = GatewayProcess(config, tmp_path, port=int(url.rsplit(":", 1)[1]))
        assert second.url() == url
        answers = await asked
        assert second.stop() == 0
        return answers

    with running(service) as teacher:
        answers = asyncio.run(run(batched(teacher)))
        counts = stats(teacher)
        _, live = run_rows(gateway_config(teacher), tmp_path / "live", rows)

    assert texts(answers) == echoes(rows)
    assert counts["batches"] == 1
    assert counts["files"] <= files
    assert set(counts["billed_by_prompt"].values()) == {1}
    report = read_report(tmp_path / "journal.sqlite")
    assert (report["answered"], report["attempts"], report["possibly_billed"]) == (len(rows), len(rows), [])
    assert report["cost"] == pytest.approx(live["cost"] / 2)
    assert report["exports"] == [{"step": "generate", "artifact": "artifact", "answers": len(rows)}]


@pytest.mark.slow
def test_a_stopped_gateway_leaves_its_batch_to_the_service_and_the_next_one_reads_it(tmp_path: Path) -> None:
    async def run(config: Any) -> list[Asked]:
        first = GatewayProcess(config, tmp_path)
        url = first.url()
        asked = asyncio.create_task(ask_rows(url, ROWS))
        async with GatewayClient(url, "report") as client:
            await until_created(client)
        assert await asyncio.to_thread(first.stop) == 0
        open_batches = read_report(tmp_path / "journal.sqlite")["batches"]
        assert [(one["role"], one["rows"]) for one in open_batches] == [("teacher", 30)]
        second = GatewayProcess(config, tmp_path, port=int(url.rsplit(":", 1)[1]))
        second.url()
        answers = await asked
        second.stop()
        return answers

    with running(create_app(EchoBrain(), Behaviour(batch_seconds=1.0))) as teacher:
        answers = asyncio.run(run(batched(teacher)))
        assert (stats(teacher)["batches"], stats(teacher)["billed"]) == (1, 30)
    assert texts(answers) == echoes(ROWS)
    log = (tmp_path / "gateway.log").read_text()
    assert "going on" in log
    assert "30 of 30 rows answered" in log


@pytest.mark.slow
def test_a_role_that_is_live_again_pays_for_nothing_that_a_batch_is_bringing(tmp_path: Path) -> None:
    async def leave(config: Any) -> None:
        first = GatewayProcess(config, tmp_path)
        url = first.url()
        asked = asyncio.create_task(ask_rows(url, ROWS))
        async with GatewayClient(url, "report") as client:
            await until_created(client)
        first.kill()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)

    async def resume(config: Any, service: Closing) -> list[Asked]:
        second = GatewayProcess(config, tmp_path)
        url = second.url()
        refused = await ask_rows(url, ROWS)
        assert all(isinstance(one, OutageError) and "paid twice" in str(one) for one in refused)
        service.closed = False
        async with GatewayClient(url, "report") as client:
            while (await client.report())["batches"]:
                pass
        answers = await ask_rows(url, ROWS)
        second.stop()
        return answers

    service = Closing(create_app(EchoBrain(), Behaviour()))
    with running(service) as teacher:
        asyncio.run(leave(batched(teacher)))
        answers = asyncio.run(resume(gateway_config(teacher), service))
        assert stats(teacher)["billed"] == 30
    assert texts(answers) == echoes(ROWS)


class Closing:
    """A service that does not say how a batch is until it is opened."""

    def __init__(self, app: Any) -> None:
        self._app, self.closed = app, True

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.closed and scope["method"] == "GET" and scope["path"].startswith("/v1/batches/"):
            await send({"type": "http.response.start", "status": 500, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, send)


@pytest.mark.slow
def test_a_batch_that_was_never_sent_is_given_up_where_its_role_is_live_again(tmp_path: Path) -> None:
    with pytest.raises(OutageError):
        run_rows(batched("http://127.0.0.1:9"), tmp_path, ROWS)
    [left] = read_report(tmp_path / "journal.sqlite")["batches"]
    half = tmp_path / f"journal.sqlite.{left['name']}.jsonl"
    half.write_text("{")  # as if the gateway had been killed while it uploaded

    async def resume(config: Any) -> list[Asked]:
        async with gateway(config, tmp_path) as url:
            async with GatewayClient(url, "report") as client:
                while (await client.report())["batches"]:
                    pass
            return await ask_rows(url, ROWS)

    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        answers = asyncio.run(resume(gateway_config(teacher)))
        assert (stats(teacher)["batches"], stats(teacher)["billed"]) == (0, 30)
    assert texts(answers) == echoes(ROWS)
    assert not half.exists()


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [(401, "invalid_api_key", "set another"), (429, "insufficient_quota", "top it up"), (404, "x", "base_url")],
)
def test_a_service_that_takes_no_batch_is_an_outage_and_the_rows_wait_unpaid(
    tmp_path: Path, status: int, code: str, says: str
) -> None:
    body = orjson.dumps({"error": {"message": "no", "code": code}})
    with running(Scripted(Reply(status, body))) as service, pytest.raises(OutageError, match=says):
        run_rows(batched(service), tmp_path, ROWS)
    report = read_report(tmp_path / "journal.sqlite")
    assert (report["cost"], report["batches"], report["possibly_billed"]) == (0, [], [])
    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        answers, _ = run_rows(batched(teacher), tmp_path, ROWS)
    assert texts(answers) == echoes(ROWS)


def test_a_line_separator_inside_an_answer_ends_no_line(tmp_path: Path) -> None:
    class Separating(EchoBrain):
        def answer(self, model: str, messages: list[dict[str, Any]], response_format: Any) -> str:
            return f"上\u2028下\u0085完 {messages[-1]['content']}"

    with running(create_app(Separating(), Behaviour())) as teacher:
        answers, _ = run_rows(batched(teacher), tmp_path, ["1"])
    assert texts(answers) == ["上\u2028下\u0085完 " + messages("1")[0]["content"]]
