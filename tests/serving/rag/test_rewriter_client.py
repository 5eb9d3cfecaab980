"""The deployed rewriter: asked in its own protocol, within a deadline, and never trusted to be there."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

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


def searched(
    engines: Engines, running: Running, fields: dict[str, Any], body: Any = GOOD_KSERVE, status: int = 200,
    path: str = "", **settings: Any,
) -> tuple[dict[str, Any], list[tuple[str, Any]]]:  # fmt: skip
    """The service's answer beside a rewriter that answers so, and the rewriter's requests."""
    app, received = FastAPI(), []

    @app.post("/{path:path}")
    async def answer(path: str, request: Request) -> Response:
        received.append((path, await request.json()))
        return Response(body if isinstance(body, bytes) else orjson.dumps(body), status)

    with running(app) as address:
        return ask_beside(engines, RewriterConfig(url=address + path, **settings), **fields), received


def ask_beside(engines: Engines, config: RewriterConfig, **fields: Any) -> dict[str, Any]:
    request = {"query": "那它一天吃几次", "tenant_id": "fivedoctors", "score_threshold": 0.0, **fields}

    async def once() -> dict[str, Any]:
        deployed = RewriterClient(config)
        transport = httpx.ASGITransport(create_app(engines, deployed))
        async with httpx.AsyncClient(transport=transport, base_url="http://rag") as client:
            data: dict[str, Any] = (await client.post(RAG_PATH, json=request)).json()["data"]
        await deployed.aclose()
        return data

    return asyncio.run(once())


def test_a_kserve_rewriter_is_asked_with_the_context_and_named_by_its_version(
    engines: Engines, running: Running
) -> None:
    data, received = searched(engines, running, {"query": "一天吃几次", "history_summary": "用户在看虾青素软胶囊"})

    instance = {"query": "一天吃几次", "user_profile": "", "history_summary": "用户在看虾青素软胶囊"}
    instance["tenant_id"] = "fivedoctors"
    assert received == [("v1/models/rewriter:predict", {"instances": [instance]})]
    assert (data["rewriter"], data["rewriter_version"]) == ("model", "7")
    assert data["rewritten_query"] == "虾青素软胶囊 每日服用频次"
    assert data["recall"][0]["id"] == "fivedoctors-0-0"


@pytest.mark.parametrize("prompts", [{}, {"fivedoctors": "你为新租户改写"}])
def test_an_openai_rewriter_gets_the_prompt_that_it_was_trained_with(
    engines: Engines, running: Running, prompts: dict[str, str]
) -> None:
    settings: Any = {"path": "/v1", "kind": "openai", "model": "qwen", "system_prompts": prompts}
    fields = {"query": "一天吃几次", "user_profile": "30岁"}
    data, [(path, body)] = searched(engines, running, fields, GOOD_OPENAI, **settings)

    question = Question("fivedoctors", "一天吃几次", "30岁", "")
    assert path == "v1/chat/completions"
    assert body["messages"] == student_messages(question, prompts.get("fivedoctors", ""))
    assert (body["model"], data["rewriter_version"]) == ("qwen", "qwen@3")


def test_a_request_that_brings_its_rewrite_asks_nobody(engines: Engines, running: Running) -> None:
    data, received = searched(engines, running, {"rewritten_query": "鱼油软胶囊"})

    assert received == []
    assert (data["rewriter"], data["rewriter_version"]) == ("request", "")


def test_a_question_that_finds_its_answer_as_it_was_asked_asks_nobody(engines: Engines, running: Running) -> None:
    question = "虾青素软胶囊 每日服用频次"
    plain, _ = searched(engines, running, {"rewritten_query": question})
    score = plain["recall"][0]["query_score"]
    as_asked, unasked = searched(engines, running, {"query": question, "need": "一天吃几次"}, as_asked=score)

    assert (as_asked["rewriter"], as_asked["fallback_reason"], unasked) == ("as asked", "", [])
    assert as_asked["rewritten_query"] == question
    assert [hit["id"] for hit in as_asked["recall"]] == [hit["id"] for hit in plain["recall"]]
    for limit in ((1 + score) / 2, 0):
        data, received = searched(engines, running, {"query": question}, as_asked=limit)
        assert (data["rewriter"], len(received)) == ("model", 1)


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
    data, _ = searched(engines, running, {}, body, status)

    assert (data["rewriter"], data["fallback_reason"]) == ("fallback", reason)
    assert data["rewritten_query"] == "那它一天吃几次"
    assert data["recall"]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("kserve", {"predictions": [{**GOOD_KSERVE["predictions"][0], "fallback": "cut"}]}),
        ("openai", {**GOOD_OPENAI, "fallback": "cut"}),
    ],
)
def test_a_rewrite_that_its_own_guard_took_back_is_a_fallback_of_that_version(
    engines: Engines, running: Running, kind: str, body: Any
) -> None:
    data, _ = searched(engines, running, {}, body, kind=kind)

    assert (data["rewriter"], data["fallback_reason"]) == ("fallback", "rewriter_guard")
    assert data["rewriter_version"] in ("7", "qwen@3")
    assert data["rewritten_query"] == "那它一天吃几次"


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
