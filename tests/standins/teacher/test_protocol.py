import asyncio
import socket
from typing import Any

import httpx
import openai
import orjson
import pytest

from standins.teacher.app import FAULTS, create_app
from standins.teacher.config import Behaviour
from tests.servers.echo_servers import EchoBrain, running

QUESTION: list[Any] = [{"role": "user", "content": "虾青素一天吃几次"}]


def ask(url: str, text: str = "虾青素一天吃几次", **more: Any) -> Any:
    """As any program would: with the official client."""

    async def run() -> Any:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            return await client.chat.completions.create(
                model="echo", messages=[{"role": "user", "content": text}], **more
            )

    return asyncio.run(run())


def post(url: str, body: Any) -> httpx.Response:
    return httpx.post(f"{url}/v1/chat/completions", content=orjson.dumps(body), trust_env=False, timeout=120)


def test_the_official_client_reads_a_completion_with_its_usage() -> None:
    with running(create_app(EchoBrain(), Behaviour())) as url:
        completion = ask(url)
    assert completion.choices[0].message.content == "回声 虾青素一天吃几次"
    assert completion.choices[0].finish_reason == "stop"
    usage = completion.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 5 < usage.prompt_tokens < 30


def test_a_refusal_has_no_content_and_an_answer_over_the_limit_is_cut() -> None:
    with running(create_app(EchoBrain(), Behaviour())) as url:
        refused = ask(url, "请拒绝").choices[0]
        long = ask(url, "很长", max_completion_tokens=50).choices[0]
    assert (refused.message.content, refused.message.refusal) == (None, "这个我不能写。")
    assert long.finish_reason == "length"
    assert 40 <= len(long.message.content) <= 90


def test_models_are_listed_and_an_unknown_one_is_refused_naming_them() -> None:
    with running(create_app(EchoBrain(), Behaviour())) as url:
        listed = httpx.get(f"{url}/v1/models", trust_env=False).json()
        refused = post(url, {"model": "gpt-5", "messages": QUESTION})
    assert [model["id"] for model in listed["data"]] == ["echo"]
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
    assert "echo" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"model": "echo", "messages": QUESTION, "stream": True}, "stream"),
        ({"model": "echo", "messages": []}, "messages"),
        ({"model": "echo", "messages": [{"role": "user", "content": None}]}, "messages"),
        ({"messages": QUESTION}, "model"),
        ([], "The body"),
    ],
)
def test_a_request_that_is_none_is_refused_naming_the_field(body: Any, named: str) -> None:
    with running(create_app(EchoBrain(), Behaviour())) as url:
        refused = post(url, body)
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith(named)


def answers(url: str, calls: int) -> list[tuple[int, bytes]]:
    with httpx.Client(trust_env=False, timeout=120) as client:
        bodies = ({"model": "echo", "messages": [{"role": "user", "content": str(n)}]} for n in range(calls))
        replies = [client.post(f"{url}/v1/chat/completions", content=orjson.dumps(body)) for body in bodies]
    return [(reply.status_code, reply.content) for reply in replies]


def test_every_kind_of_failure_happens_and_the_same_seed_brings_the_same_ones() -> None:
    runs = []
    for _ in range(2):
        with running(create_app(EchoBrain(), Behaviour(error_rate=1.0, seed=3))) as url:
            runs.append(answers(url, 40))
            assert httpx.get(f"{url}/stats", trust_env=False).json()["billed"] == 0
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == len(FAULTS)


def test_a_caller_who_hangs_up_within_the_request_is_no_error_of_ours(capfd: pytest.CaptureFixture[str]) -> None:
    with running(create_app(EchoBrain(), Behaviour())) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as half:
            half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        assert ask(url).choices[0].finish_reason == "stop"
    assert "Exception" not in capfd.readouterr().err
