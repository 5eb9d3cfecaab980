import asyncio
import socket
from typing import Any

import orjson
import pytest

from qinglan.errors import BudgetError, ConfigError, OutageError, RowError
from qinglan.llm.client import Answer, GatewayClient
from qinglan.llm.contract import BUDGET_EXCEEDED, CALL_HEADER, OUTAGE, ROW_FAILED, STOPPING
from qinglan.llm.usable_answer import usable_text
from tests.servers.echo_servers import Reply, Scripted, completion, running

GOOD = Reply(200, completion("虾青素 每日用量"), {CALL_HEADER: "k1"})


def failure(status: int, kind: str, message: str, code: str | None = None, param: str | None = None) -> Reply:
    return Reply(status, orjson.dumps({"error": {"type": kind, "message": message, "code": code, "param": param}}))


def ask(url: str, row: str = "行 1", back_within: float = 5.0, **more: Any) -> Answer:
    async def run() -> Answer:
        async with GatewayClient(url, "generate", back_within) as gateway:
            return await gateway.ask("teacher", [{"role": "user", "content": "问"}], row=row, **more)

    return asyncio.run(run())


def test_an_answer_comes_with_its_call_and_the_ask_says_who_wants_it() -> None:
    app = Scripted(GOOD)
    with running(app) as url:
        answer = ask(url, sample=3)
    assert answer == Answer("虾青素 每日用量", "echo", "k1", False, answer.usage)
    path, body, headers = app.requests[0]
    assert (path, orjson.loads(body)["model"]) == ("/v1/chat/completions", "teacher")
    assert headers["x-qinglan-row"] == "%E8%A1%8C%201"
    assert (headers["x-qinglan-step"], headers["x-qinglan-sample"]) == ("generate", "3")


@pytest.mark.parametrize(
    ("body", "structured", "reason"),
    [
        (completion("", refusal="我不能"), False, "refused"),
        (completion("半句", finish="content_filter"), False, "refused"),
        (completion("半句", finish="length"), False, "truncated"),
        (completion("  \n"), False, "empty"),
        (completion("不是 JSON"), True, "malformed"),
        (completion("[1]"), True, "malformed"),
        (b'{"choices": null}', False, "malformed"),
    ],
)
def test_a_completion_that_cannot_be_used_is_a_failed_row_with_what_came(
    body: bytes, structured: bool, reason: str
) -> None:
    with pytest.raises(RowError) as caught:
        usable_text(orjson.loads(body), structured)
    assert caught.value.reason == reason
    assert orjson.loads(caught.value.raw) == orjson.loads(body)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (failure(402, BUDGET_EXCEEDED, "raise it"), BudgetError),
        (failure(503, OUTAGE, "no credit"), OutageError),
        (failure(400, "invalid_request_error", "model: no role"), ConfigError),
        (Reply(500, b"Internal Server Error"), OutageError),
    ],
)
def test_each_error_of_the_gateway_stops_the_run_as_what_it_is(reply: Reply, expected: type[Exception]) -> None:
    app = Scripted(reply)
    with running(app) as url, pytest.raises(expected):
        ask(url)
    assert len(app.requests) == 1


def test_a_failed_row_keeps_its_reason_and_what_came_instead_of_an_answer() -> None:
    app = Scripted(failure(422, ROW_FAILED, "status 400: too long", "rejected", "<raw>"))
    with running(app) as url, pytest.raises(RowError, match="too long") as caught:
        ask(url)
    assert (caught.value.reason, caught.value.raw) == ("rejected", "<raw>")


def test_a_gateway_that_is_being_stopped_is_waited_for_like_one_that_is_away() -> None:
    app = Scripted(failure(503, OUTAGE, "stopping", STOPPING), GOOD)
    with running(app) as url:
        assert ask(url).call == "k1"
    assert len(app.requests) == 2


def test_a_gateway_that_stays_away_is_an_outage_that_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(OutageError, match="Start it again on the same journal"):
        ask(url, back_within=0.3)
