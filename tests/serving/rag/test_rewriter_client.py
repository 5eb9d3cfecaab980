"""The deployed rewriter: asked in its own protocol, within a deadline, and never trusted to be there."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal

import httpx
import orjson
import pytest
from fastapi import FastAPI, Request, Response

from qinglan.prompts import Question, student_messages
from qinglan.rag.contract import RAG_PATH
from serving.rag.app import create_app
from serving.rag.config import RewriterConfig
from serving.rag.engine import TantivyEngine
from serving.rag.rewriter_client import RewriterClient, read_rewrite
from serving.rag.service_client import ServiceError

Running = Callable[[Any], AbstractContextManager[str]]
Engines = dict[tuple[str, str], TantivyEngine]

KSERVE = RewriterConfig(kind="kserve", url="http://127.0.0.1")
OPENAI = RewriterConfig(kind="openai", url="http://127.0.0.1/v1")
GOOD_KSERVE = {"predictions": [{"rewritten_query": "虾青素软胶囊 每日服用频次", "model_version": "7"}]}
GOOD_OPENAI = {"model": "qwen@3", "choices": [{"message": {"content": "虾青素软胶囊 每日服用频次"}}]}


def rewriter(body: Any, status: int = 200) -> tuple[FastAPI, list[tuple[str, Any]]]:
    """A server that answers every POST with this; and what it was asked."""
    app, received = FastAPI(), []

    @app.post("/{path:path}")
    async def answer(path: str, request: Request) -> Response:
        received.append((path, await request.json()))
        return Response(body if isinstance(body, bytes) else orjson.dumps(body), status)

    return app, received


def searched(engines: Engines, config: RewriterConfig, **fields: Any) -> dict[str, Any]:
    """What the service answers, with this rewriter deployed beside it."""
    asked = {"query": "那它一天吃几次", "tenant_id": "fivedoctors", "score_threshold": 0.0, **fields}

    async def once() -> dict[str, Any]:
        deployed = RewriterClient(config)
        transport = httpx.ASGITransport(create_app(engines, deployed))
        async with httpx.AsyncClient(transport=transport, base_url="http://rag") as client:
            data: dict[str, Any] = (await client.post(RAG_PATH, json=asked)).json()["data"]
        await deployed.aclose()
        return data

    return asyncio.run(once())


def test_a_kserve_rewriter_is_asked_with_the_context_and_named_by_its_version(
    engines: Engines, running: Running
) -> None:
    app, received = rewriter(GOOD_KSERVE)

    with running(app) as address:
        config = RewriterConfig(kind="kserve", url=address)
        data = searched(engines, config, query="一天吃几次", history_summary="用户在看虾青素软胶囊")

    instance = {"query": "一天吃几次", "user_profile": "", "history_summary": "用户在看虾青素软胶囊"}
    instance["tenant_id"] = "fivedoctors"
    assert received == [("v1/models/rewriter:predict", {"instances": [instance]})]
    assert (data["rewriter"], data["rewriter_version"]) == ("model", "7")
    assert data["rewritten_query"] == "虾青素软胶囊 每日服用频次"
    assert data["recall"][0]["id"] == "fivedoctors-0-0"


def test_an_openai_rewriter_gets_the_prompt_that_it_was_trained_with(engines: Engines, running: Running) -> None:
    app, received = rewriter(GOOD_OPENAI)

    with running(app) as address:
        config = RewriterConfig(kind="openai", url=f"{address}/v1", model="qwen")
        data = searched(engines, config, query="一天吃几次", user_profile="30岁")

    path, body = received[0]
    assert path == "v1/chat/completions"
    assert body["messages"] == student_messages(Question("fivedoctors", "一天吃几次", "30岁", ""))
    assert (body["model"], data["rewriter_version"]) == ("qwen", "qwen@3")


def test_an_openai_rewriter_trained_under_a_profiles_prompt_is_asked_with_that(
    engines: Engines, running: Running
) -> None:
    app, received = rewriter(GOOD_OPENAI)
    prompts = {"fivedoctors": "你为新租户改写"}

    with running(app) as address:
        searched(engines, RewriterConfig(kind="openai", url=f"{address}/v1", system_prompts=prompts), query="几次")

    assert received[0][1]["messages"][0] == {"role": "system", "content": "你为新租户改写"}


def test_a_request_that_brings_its_rewrite_asks_nobody(engines: Engines, running: Running) -> None:
    app, received = rewriter(GOOD_KSERVE)

    with running(app) as address:
        data = searched(engines, RewriterConfig(url=address), rewritten_query="鱼油软胶囊")

    assert received == []
    assert (data["rewriter"], data["rewriter_version"]) == ("request", "")


def test_a_question_that_finds_its_answer_as_it_was_asked_asks_nobody(engines: Engines, running: Running) -> None:
    app, received = rewriter(GOOD_KSERVE)

    with running(app) as address:
        plain = searched(engines, RewriterConfig(url=address), rewritten_query="虾青素软胶囊 每日服用频次")
        own = plain["recall"][0]["query_score"]
        question = "虾青素软胶囊 每日服用频次"
        as_asked = searched(engines, RewriterConfig(url=address, as_asked=own), query=question, need="一天吃几次")
        below = searched(engines, RewriterConfig(url=address, as_asked=(1 + own) / 2), query=question)
        never = searched(engines, RewriterConfig(url=address, as_asked=0), query=question)

    assert (as_asked["rewriter"], as_asked["fallback_reason"]) == ("as asked", "")
    assert as_asked["rewritten_query"] == question
    assert [hit["id"] for hit in as_asked["recall"]] == [hit["id"] for hit in plain["recall"]]
    assert (below["rewriter"], never["rewriter"], len(received)) == ("model", "model", 2)


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (GOOD_KSERVE, 500, "refused"),
        (b"<html>", 200, "malformed"),
        ({"predictions": []}, 200, "malformed"),
        ({"predictions": [{"rewritten_query": " \n", "model_version": "7"}]}, 200, "empty"),
        ({"predictions": [{"rewritten_query": "\u200b\ufeff", "model_version": "7"}]}, 200, "empty"),
        ({"predictions": [{"rewritten_query": "\u115f", "model_version": "7"}]}, 200, "empty"),
    ],
)
def test_a_rewriter_that_fails_leaves_the_plain_query_and_a_reason(
    engines: Engines, running: Running, body: Any, status: int, reason: str
) -> None:
    app, _ = rewriter(body, status)

    with running(app) as address:
        data = searched(engines, RewriterConfig(url=address))

    assert (data["rewriter"], data["fallback_reason"]) == ("fallback", reason)
    assert data["rewritten_query"] == "那它一天吃几次"
    assert data["recall"]


@pytest.mark.parametrize("kind", ["kserve", "openai"])
def test_a_rewrite_that_its_own_guard_took_back_is_a_fallback_of_that_version(
    engines: Engines, running: Running, kind: Literal["kserve", "openai"]
) -> None:
    told = {"predictions": [{**GOOD_KSERVE["predictions"][0], "fallback": "cut"}]}
    app, _ = rewriter(told if kind == "kserve" else {**GOOD_OPENAI, "fallback": "cut"})

    with running(app) as address:
        data = searched(engines, RewriterConfig(kind=kind, url=address))

    assert (data["rewriter"], data["fallback_reason"]) == ("fallback", "rewriter_guard")
    assert data["rewriter_version"] in ("7", "qwen@3")
    assert data["rewritten_query"] == "那它一天吃几次"


def test_a_rewriter_that_hangs_costs_no_more_than_the_deadline(engines: Engines) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = RewriterConfig(url=f"http://127.0.0.1:{silent.getsockname()[1]}", deadline_seconds=0.1)
        data = searched(engines, config)

    assert (data["rewriter"], data["fallback_reason"]) == ("fallback", "timeout")


def test_a_rewriter_that_is_not_there_is_unreachable(engines: Engines) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    data = searched(engines, RewriterConfig(url=f"http://127.0.0.1:{port}"))

    assert data["fallback_reason"] == "unreachable"


@pytest.mark.parametrize(
    ("config", "body"),
    [
        (KSERVE, {}),
        (KSERVE, []),
        (KSERVE, {"predictions": [{"rewritten_query": "x"}]}),
        (KSERVE, {"predictions": [{"rewritten_query": None, "model_version": "7"}]}),
        (KSERVE, {"predictions": [{"rewritten_query": "长" * 4001, "model_version": "7"}]}),
        (OPENAI, {"model": "m", "choices": None}),
        (OPENAI, {"model": "m", "choices": [{"message": {"content": None}}]}),
        (OPENAI, {"choices": [{"message": {"content": "x"}}]}),
    ],
)
def test_an_answer_without_one_usable_line_is_a_failure(config: RewriterConfig, body: Any) -> None:
    with pytest.raises(ServiceError, match="malformed"):
        read_rewrite(config, orjson.dumps(body))


def test_a_rewrite_of_several_lines_becomes_one() -> None:
    body = {"model": "m", "choices": [{"message": {"content": "虾青素\n每日服用频次\n"}}]}

    assert read_rewrite(OPENAI, orjson.dumps(body)).query == "虾青素 每日服用频次"
