import asyncio
import socket
from typing import Any

import orjson
import pytest

from qinglan.errors import ConfigError
from qinglan.llm.config import PaidModel
from qinglan.llm.providers.upstream import (
    FatalUpstreamError,
    RateLimitError,
    RejectedRequestError,
    TransientError,
    Upstream,
    UpstreamError,
    error_from_status,
    read_completion,
)
from tests.servers.echo_servers import PRICE, Reply, Scripted, completion, running

KEY = "sk-planted-0123456789"
REQUEST: dict[str, Any] = {"model": "echo", "messages": [{"role": "user", "content": "问"}]}


def error(message: str, code: str | None = None, kind: str | None = None) -> str:
    return orjson.dumps({"error": {"message": message, "code": code, "type": kind}}).decode()


def model(url: str) -> PaidModel:
    return PaidModel.parse({"base_url": f"{url}/v1", "model": "echo", "price": PRICE}, "test")


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (429, error("slow down", "rate_limit_exceeded"), RateLimitError),
        (429, error("no credit", "insufficient_quota"), FatalUpstreamError),
        (429, error("no credit", None, "insufficient_quota"), FatalUpstreamError),
        (402, error("Insufficient Balance"), FatalUpstreamError),
        (401, error("bad key", "invalid_api_key"), FatalUpstreamError),
        (403, error("not for you"), FatalUpstreamError),
        (404, error("no such model", "model_not_found"), FatalUpstreamError),
        (307, "", FatalUpstreamError),
        (400, error("too long", "context_length_exceeded"), RejectedRequestError),
        (422, '{"detail": "no"}', RejectedRequestError),
        (500, error("oops"), TransientError),
        (503, "<html>", TransientError),
        (408, "", TransientError),
    ],
)
def test_an_error_status_stops_the_row_the_run_or_nothing(
    status: int, body: str, expected: type[UpstreamError]
) -> None:
    result = error_from_status(status, {}, body, "teacher")
    assert type(result) is expected
    assert not result.maybe_billed


@pytest.mark.parametrize(
    ("status", "body", "maybe_billed"),
    [
        (502, "<html>Bad Gateway</html>", True),
        (504, "<html>Gateway Time-out</html>", True),
        (504, error("timed out", "timeout"), True),
        (520, "", True),
        (524, "", True),
        (500, error("oops"), False),
        (503, error("overloaded"), False),
        (521, "", False),
        (522, "", False),
    ],
)
def test_a_call_that_a_proxy_cut_off_may_have_been_billed(status: int, body: str, maybe_billed: bool) -> None:
    result = error_from_status(status, {}, body, "teacher")

    assert (type(result), result.maybe_billed) == (TransientError, maybe_billed)


@pytest.mark.parametrize(
    "body",
    ["<html></html>", '{"choices": null}', '{"choices": []}', '{"choices": [{}]}', '{"choices": [{"in', "[]", ""],
)
def test_a_body_that_is_no_completion_is_kept_raw_and_counts_as_possibly_billed(body: str) -> None:
    with pytest.raises(TransientError) as caught:
        read_completion(body, "teacher")
    assert caught.value.raw == body
    assert caught.value.maybe_billed


async def ask(upstream: Upstream) -> Any:
    try:
        return await upstream.complete(REQUEST)
    except UpstreamError as failure:
        return failure
    finally:
        await upstream.aclose()


def test_an_answer_that_the_service_broke_off_is_asked_for_again_and_may_have_been_billed() -> None:
    broken = completion("虾青", finish="insufficient_system_resource").decode()

    with pytest.raises(TransientError, match="broke off") as result:
        read_completion(broken, "teacher")
    assert result.value.maybe_billed


@pytest.mark.parametrize(
    "body",
    [
        error("Content Exists Risk", "invalid_request_error"),
        error("The response was filtered", "content_filter"),
        error("flagged", "content_policy_violation"),
    ],
)
def test_a_filter_that_refuses_the_request_is_a_refusal_and_no_fault_of_ours(body: str) -> None:
    result = error_from_status(400, {}, body, "teacher")

    assert (type(result), result.reason, result.maybe_billed) == (RejectedRequestError, "refused", False)


def test_an_answer_comes_as_it_was_sent_with_its_usage() -> None:
    with running(Scripted(Reply(200, completion("答")))) as url:
        answer = asyncio.run(ask(Upstream(model(url), "teacher", 5)))
    assert answer.raw == completion("答")
    assert (answer.usage.input, answer.usage.output) == (20, 5)


def test_a_service_that_repeats_the_key_does_not_bring_it_into_our_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QINGLAN_API_KEY", KEY)
    refused = Reply(401, error(f"Incorrect API key provided: {KEY}").encode())
    app = Scripted(refused, Reply(200, completion(f"your key is {KEY}").replace(b"sk-", b"\\u0073\\u006B-")))
    with running(app) as url:
        failure = asyncio.run(ask(Upstream(model(url), "teacher", 5)))
        answer = asyncio.run(ask(Upstream(model(url), "teacher", 5)))
    assert app.requests[0][2]["authorization"] == f"Bearer {KEY}"
    assert KEY not in str(orjson.loads(answer.raw))
    assert "[key]" in str(failure)
    assert KEY not in str(failure) + failure.raw + answer.raw.decode()


def test_a_service_that_never_answers_may_have_billed_and_one_that_is_not_there_has_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken_but_never_read:
        url = f"http://127.0.0.1:{taken_but_never_read.getsockname()[1]}"
        silent = asyncio.run(ask(Upstream(model(url), "teacher", 0.2)))
    assert (silent.reason, silent.maybe_billed) == ("timeout", True)
    absent = asyncio.run(ask(Upstream(model("http://127.0.0.1:9"), "teacher", 5)))
    assert (absent.reason, absent.maybe_billed) == ("connection", False)


def test_a_service_elsewhere_needs_a_key_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QINGLAN_ALLOWED_HOSTS", "api.example.com")
    monkeypatch.delenv("QINGLAN_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="Set the environment variable QINGLAN_API_KEY"):
        Upstream(model("https://api.example.com"), "teacher", 5)
