import asyncio
import socket
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from qinglan.errors import BudgetError, ConfigError, OutageError, RowError
from qinglan.llm.client import Answer, GatewayClient
from qinglan.llm.config import GatewayConfig
from qinglan.llm.providers.prices import worst_cost
from standins.teacher.app import create_app
from standins.teacher.config import Behaviour
from tests.servers.echo_servers import EchoBrain, Reply, Scripted, completion, gateway, gateway_config, running

Outcome = Answer | BaseException


def messages(text: str) -> list[Any]:
    return [{"role": "system", "content": "改写"}, {"role": "user", "content": text}]


def ask_all(
    config: GatewayConfig, folder: Path, texts: list[str], **more: Any
) -> tuple[list[Outcome], dict[str, Any]]:
    """Each text asked for by a row of its own, all at once, with the report of the journal after them."""

    async def run() -> tuple[list[Outcome], dict[str, Any]]:
        async with gateway(config, folder) as url, GatewayClient(url, "generate") as client:
            asks = (client.ask("teacher", messages(text), row=f"行{n}", **more) for n, text in enumerate(texts))
            answers = await asyncio.gather(*asks, return_exceptions=True)
            return list(answers), await client.report()

    return asyncio.run(run())


def stats(url: str) -> dict[str, Any]:
    result: dict[str, Any] = httpx.get(f"{url}/stats", trust_env=False).json()
    return result


def error(status: int, message: str, code: str, **headers: str) -> Reply:
    body = orjson.dumps({"error": {"message": message, "code": code}})
    return Reply(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


def test_equal_prompts_of_many_rows_are_paid_once_even_at_the_same_time(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour(latency=0.1))) as teacher:
        answers, report = ask_all(gateway_config(teacher), tmp_path, ["一样"] * 8 + ["两样"])
        assert stats(teacher)["billed"] == 2
    texts = [answer.text for answer in answers if isinstance(answer, Answer)]
    assert texts == ["回声 一样"] * 8 + ["回声 两样"]
    assert (report["calls"], report["hits"], len(report["possibly_billed"])) == (2, 7, 0)


def test_a_restarted_gateway_answers_from_its_journal_and_says_so(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        first, before = ask_all(gateway_config(teacher), tmp_path, ["一", "二"])
        again, after = ask_all(gateway_config(teacher), tmp_path, ["一", "二"])
        assert stats(teacher)["asked"] == 2
    assert [a.cached for a in (*first, *again) if isinstance(a, Answer)] == [False, False, True, True]
    assert before["digest"] == after["digest"]
    assert before["cost"] == after["cost"] > 0


def test_refused_and_truncated_answers_were_billed_and_are_no_rewrites(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        answers, report = ask_all(gateway_config(teacher), tmp_path, ["请拒绝", "很长", "好"])
        assert stats(teacher)["billed"] == 3
    reasons = [a.reason if isinstance(a, RowError) else "answered" for a in answers]
    assert reasons == ["refused", "truncated", "answered"]
    assert (report["answered"], report["failed"]) == (3, 0)


def test_a_models_own_settings_are_sent_and_its_answers_are_cleaned(tmp_path: Path) -> None:
    settings = {
        "temperature": None, "reasoning_effort": "low", "extra_body": {"thinking": {"type": "disabled"}},
        "strip_thinking": True, "refusal_patterns": ["抱歉，我不能"],
    }  # fmt: skip
    app = Scripted(Reply(200, completion("<think>想</think>答")), Reply(200, completion("抱歉，我不能回答。")))
    with running(app) as teacher:
        config = gateway_config(teacher, model=settings, limits={"concurrency": 1})
        answers, _ = ask_all(config, tmp_path, ["一", "二"])
        plain, _ = ask_all(gateway_config(teacher, model={**settings, "strip_thinking": False}), tmp_path, ["一"])
    sent = orjson.loads(app.requests[0][1])
    assert (sent["reasoning_effort"], sent["thinking"], "temperature" in sent) == ("low", {"type": "disabled"}, False)
    assert isinstance(answers[0], Answer) and answers[0].text == "答"
    assert isinstance(answers[1], RowError) and answers[1].reason == "refused"
    assert isinstance(plain[0], Answer) and (plain[0].text, plain[0].cached) == ("<think>想</think>答", True)


def test_questions_that_a_filter_refuses_are_rows_without_an_answer_and_no_outage(tmp_path: Path) -> None:
    app = Scripted(error(400, "Content Exists Risk", "invalid_request_error"))
    with running(app) as teacher:
        config = gateway_config(teacher, limits={"outage_after": 2, "concurrency": 1})
        answers, report = ask_all(config, tmp_path, [str(n) for n in range(5)])
    assert [answer.reason for answer in answers if isinstance(answer, RowError)] == ["refused"] * 5
    assert (len(app.requests), report["cost"]) == (5, 0)


def test_an_unreadable_answer_is_asked_for_again_and_named_as_possibly_billed(tmp_path: Path) -> None:
    with running(Scripted(Reply(200, b'{"choices": null}'), Reply(200, completion("答")))) as teacher:
        answers, report = ask_all(gateway_config(teacher), tmp_path, ["一"])
    assert isinstance(answers[0], Answer)
    assert (report["attempts"], report["possibly_billed"]) == (2, ["generate/行0"])


def test_a_row_that_only_gets_garbage_fails_with_it_and_may_have_been_billed_each_time(tmp_path: Path) -> None:
    with running(Scripted(Reply(200, b"<html>gateway</html>"))) as teacher:
        answers, report = ask_all(config := gateway_config(teacher), tmp_path, ["一"])
    assert isinstance(answers[0], RowError)
    assert (answers[0].reason, answers[0].raw) == ("unreadable", "<html>gateway</html>")
    assert (report["failed"], report["attempts"]) == (1, 2)
    assert report["cost"] > worst_cost(config.teacher.price, b"", config.teacher.max_output_tokens)


def test_a_bad_request_fails_its_row_at_once_and_costs_nothing(tmp_path: Path) -> None:
    app = Scripted(error(400, "too long", "context_length_exceeded"), Reply(200, completion("答")))
    with running(app) as teacher:
        answers, report = ask_all(gateway_config(teacher, limits={"concurrency": 1}), tmp_path, ["一", "二"])
    assert sorted(type(answer).__name__ for answer in answers) == ["Answer", "RowError"]
    assert (len(app.requests), report["attempts"], report["failed"]) == (2, 2, 1)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (error(429, "You exceeded your quota", "insufficient_quota"), "top it up"),
        (error(401, "bad key", "invalid_api_key"), "set another"),
        (error(404, "no such model", "model_not_found"), "base_url and model"),
        (error(429, "come back tomorrow", "rate_limit_exceeded", retry_after="86400"), "Run again after that time"),
    ],
)
def test_an_error_that_concerns_every_row_stops_the_run_after_one_call(
    tmp_path: Path, reply: Reply, says: str
) -> None:
    app = Scripted(reply)
    with running(app) as teacher:
        config = gateway_config(teacher, limits={"concurrency": 1})
        answers, report = ask_all(config, tmp_path, ["一", "二", "三"])
    assert all(isinstance(answer, OutageError) and says in str(answer) for answer in answers)
    assert len(app.requests) == 1
    assert report["cost"] == 0


def test_a_service_that_never_lets_one_wait_is_not_asked_for_ever(tmp_path: Path) -> None:
    """ "Now", or a date that this machine's clock has passed: the pauses have an end all the same."""
    app = Scripted(error(429, "slow down", "rate_limit_exceeded", retry_after="0"))
    with running(app) as teacher:
        config = gateway_config(teacher, limits={"concurrency": 1, "longest_wait_seconds": 0.5})
        [answer], _ = ask_all(config, tmp_path, ["一"])

    assert isinstance(answer, OutageError) and "Run again later" in str(answer)
    assert len(app.requests) <= 6


def test_calls_that_all_fail_end_in_an_outage_instead_of_a_quarantined_sheet(tmp_path: Path) -> None:
    app = Scripted(error(400, "no parameter temperature", "unsupported"))
    with running(app) as teacher:
        config = gateway_config(teacher, limits={"outage_after": 3, "concurrency": 1})
        answers, _ = ask_all(config, tmp_path, [str(n) for n in range(8)])
    kinds = [type(answer) for answer in answers]
    assert (kinds.count(RowError), kinds.count(OutageError)) == (3, 5)
    assert len(app.requests) == 3


def test_a_provider_that_nobody_reaches_is_an_outage_for_each_row_and_is_asked_again_later(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    answers, report = ask_all(gateway_config(f"http://127.0.0.1:{port}"), tmp_path, ["一", "二"])

    for answer in answers:
        assert isinstance(answer, OutageError), answer
        assert f"teacher echo at http://127.0.0.1:{port}/v1: ConnectError" in str(answer)
        assert str(answer).endswith(
            "Run the same command again when it answers; nothing of what was answered is lost."
        )
    assert (report["failed"], report["cost"], report["possibly_billed"]) == (0, 0, [])

    with running(Scripted(Reply(200, completion("答")))) as teacher:
        answers, report = ask_all(gateway_config(teacher), tmp_path, ["一", "二"])
    assert [answer.cached for answer in answers if isinstance(answer, Answer)] == [False, False]


def test_calls_under_way_when_an_outage_is_noticed_are_no_failed_rows(tmp_path: Path) -> None:
    with running(Scripted(error(503, "overloaded", "overloaded"))) as teacher:
        config = gateway_config(teacher, limits={"outage_after": 3, "concurrency": 8})
        answers, _ = ask_all(config, tmp_path, [str(n) for n in range(8)])
    kinds = [type(answer) for answer in answers]
    assert (kinds.count(RowError), kinds.count(OutageError)) == (3, 5)


def test_retry_after_holds_the_whole_run_and_fails_nobody(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour(requests_per_minute=180))) as teacher:
        answers, report = ask_all(gateway_config(teacher), tmp_path, [str(n) for n in range(6)])
        requested = stats(teacher)["asked"]
    assert all(isinstance(answer, Answer) for answer in answers)
    # Three at once, a pause of a second for everyone, and again: without the common pause it would be hundreds.
    assert 6 < requested <= 30
    assert report["answered"] == 6


def test_no_more_calls_are_under_way_than_the_limit(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour(latency=0.02))) as teacher:
        ask_all(gateway_config(teacher, limits={"concurrency": 4}), tmp_path, [str(n) for n in range(30)])
        assert stats(teacher)["most_under_way"] == 4


@pytest.mark.slow
def test_the_budget_is_never_passed_and_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour(latency=0.01, jitter=0.01))) as teacher:
        config = gateway_config(teacher, budget=0.005)
        answers, report = ask_all(config, tmp_path, [f"问题{n}" for n in range(200)])
        more, _ = ask_all(gateway_config(teacher, budget=50), tmp_path, [f"问题{n}" for n in range(200)])
        assert stats(teacher)["billed"] == 200
    kinds = {type(answer) for answer in answers}
    assert kinds == {Answer, BudgetError}
    worst = 0.0013
    assert config.budget - worst < report["cost"] <= config.budget
    assert all(isinstance(answer, Answer) for answer in more)


def test_an_asker_who_hangs_up_does_not_waste_what_is_being_paid_for(tmp_path: Path) -> None:
    async def run(config: GatewayConfig) -> dict[str, Any]:
        async with gateway(config, tmp_path) as url, GatewayClient(url, "generate") as client:
            requested = asyncio.create_task(client.ask("teacher", messages("一"), row="1"))
            while not (await client.report())["attempts"]:
                pass
            requested.cancel()
            await asyncio.gather(requested, return_exceptions=True)
            while not (report := await client.report())["answered"]:
                pass
            return report

    with running(create_app(EchoBrain(), Behaviour(latency=0.3))) as teacher:
        assert asyncio.run(run(gateway_config(teacher)))["possibly_billed"] == []


PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/1.png"}}
"""A part of a message whose price does not follow from its bytes."""


def post(config: GatewayConfig, folder: Path, body: Any, headers: dict[str, str]) -> httpx.Response:
    async def run() -> httpx.Response:
        async with gateway(config, folder) as url, httpx.AsyncClient(trust_env=False) as client:
            return await client.post(f"{url}/v1/chat/completions", content=orjson.dumps(body), headers=headers)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"model": "teacher", "messages": messages("一"), "stream": True}, "stream"),
        ({"model": "gpt-5", "messages": messages("一")}, "model"),
        ({"model": "teacher", "messages": []}, "messages"),
        ({"model": "teacher", "messages": messages("一"), "temperature": 2}, "temperature"),
        ({"model": "teacher", "messages": messages("一"), "response_format": "json"}, "response_format"),
        ({"model": "teacher", "messages": [{"role": "user", "content": [PICTURE]}]}, "messages"),
        (
            {"model": "teacher", "messages": [{"role": "user", "content": [{"type": "text", "text": "一"}]}]},
            "messages",
        ),
        ({"model": "teacher", "messages": [{"role": "user", "content": None}]}, "messages"),
        ({"model": "teacher", "messages": [{"role": ["user"], "content": "一"}]}, "messages"),
        ({"model": "teacher", "messages": [{"role": "user"}]}, "messages"),
        ([], "body"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_naming_the_field(tmp_path: Path, body: Any, named: str) -> None:
    headers = {"x-qinglan-step": "generate", "x-qinglan-row": "1"}
    refused = post(gateway_config("http://127.0.0.1:9"), tmp_path, body, headers)
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith(named)


TWICE = b'{"role": "user", "content": "a", "content": "b"}'


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", b'{"model": "teacher", "model": "judge", "messages": []}', 400),
        ("/v1/chat/completions", b'{"model": "teacher", "messages": [' + TWICE + b"]}", 400),
        ("/api/chat/general_rag", b'{"query": "a", "tenant_id": "t", "tenant_id": "u"}', 422),
        ("/api/chat/general_rag", b'{"query": "a", "tenant_id": "t", "tenant\\u005fid": "u"}', 422),
        ("/v1/journal/exported", b'{"step": "a", "step": "b", "artifact": "c"}', 400),
        ("/v1/trainings", b'{"run": "a", "run": "b"}', 400),
    ],
)
def test_a_request_with_two_meanings_is_refused(tmp_path: Path, path: str, body: bytes, status: int) -> None:
    headers = {"x-qinglan-step": "generate", "x-qinglan-row": "1"}

    async def run() -> httpx.Response:
        config = gateway_config("http://127.0.0.1:9")
        async with gateway(config, tmp_path) as url, httpx.AsyncClient(trust_env=False) as client:
            return await client.post(url + path, content=body, headers=headers)

    refused = asyncio.run(run())
    assert refused.status_code == status
    assert "is there twice" in refused.text


@pytest.mark.parametrize("path", ["/v1/journal/report", "/v1/journal/paid?step=generate", "/v1/journal/exported"])
def test_a_journal_on_a_full_disk_is_an_outage_in_words(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    async def run() -> httpx.Response:
        async with (
            gateway(gateway_config("http://127.0.0.1:9"), tmp_path) as url,
            httpx.AsyncClient(base_url=url, trust_env=False) as http,
        ):
            monkeypatch.setattr("qinglan.llm.paid.group_commit.GroupWriter._commit", full)
            if path.endswith("exported"):
                return await http.post(path, content=b'{"step": "a", "artifact": "b"}')
            return await http.get(path)

    answer = asyncio.run(run())
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "outage")
    assert "disk is full" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({"x-qinglan-row": "1"}, "x-qinglan-step"),
        ({"x-qinglan-step": "generate"}, "x-qinglan-row"),
        ({"x-qinglan-step": "generate", "x-qinglan-row": "1", "x-qinglan-sample": "-1"}, "x-qinglan-sample"),
    ],
)
def test_a_request_without_caller_headers_is_refused(tmp_path: Path, headers: dict[str, str], named: str) -> None:
    body = {"model": "teacher", "messages": messages("一")}
    refused = post(gateway_config("http://127.0.0.1:9"), tmp_path, body, headers)
    assert (refused.status_code, refused.json()["error"]["message"].split(":")[0]) == (400, named)


def test_a_budget_over_two_currencies_is_refused(tmp_path: Path) -> None:
    config = gateway_config("http://127.0.0.1:9")
    euros = config.judge.model_copy(update={"price": config.judge.price.model_copy(update={"currency": "EUR"})})

    async def run() -> None:
        async with gateway(config.model_copy(update={"judge": euros}), tmp_path):
            pass

    with pytest.raises(ConfigError, match="teacher in USD, judge in EUR"):
        asyncio.run(run())


def test_metrics_tell_of_calls_hits_and_money(tmp_path: Path) -> None:
    async def run(config: GatewayConfig) -> str:
        async with (
            gateway(config, tmp_path) as url,
            GatewayClient(url, "generate") as client,
            httpx.AsyncClient(trust_env=False) as http,
        ):
            for row in ("1", "2"):
                await client.ask("judge", messages("一"), row=row)
            assert (await http.get(f"{url}/readyz")).status_code == 200
            return (await http.get(f"{url}/metrics")).text

    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        text = asyncio.run(run(gateway_config(teacher)))
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert lines['qinglan_calls_total{outcome="hit",role="judge"}'] == "1.0"
    assert lines['qinglan_attempts_total{role="judge"}'] == "1.0"
    assert float(lines["qinglan_money_spent"]) > 0
    assert lines["qinglan_calls_under_way"] == "0.0"


@pytest.mark.parametrize(
    ("field", "count"),
    [
        ("prompt_tokens", 10**21),
        ("prompt_tokens", 10**9),
        ("prompt_tokens", 100_000),
        ("prompt_tokens", -1),
        ("completion_tokens", 10**9),
        ("completion_tokens", 1_000),
        ("completion_tokens", 2**63),
        ("completion_tokens", -(10**9)),
    ],
)
def test_a_service_that_counts_more_tokens_than_there_are_is_charged_at_the_worst(
    tmp_path: Path, field: str, count: int
) -> None:
    boast = orjson.loads(completion("答"))
    boast["usage"][field] = "COUNT"
    sent = orjson.dumps(boast).replace(b'"COUNT"', str(count).encode())  # orjson writes no number above 64 bits
    with running(Scripted(Reply(200, sent))) as teacher:
        answers, report = ask_all(config := gateway_config(teacher, budget=0.01), tmp_path, ["一", "二"])
    longest = len("改写二") * 4 + 200
    assert all(isinstance(answer, Answer) for answer in answers)
    worst = worst_cost(config.teacher.price, b" " * longest, config.teacher.max_output_tokens)
    assert worst_cost(config.teacher.price, b"", config.teacher.max_output_tokens) < report["cost"] / 2 < worst


@pytest.mark.slow
def test_a_request_that_is_larger_than_the_gateway_takes_fails_alone(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        answers, _ = ask_all(gateway_config(teacher), tmp_path, ["一", "长" * 10**6, "二"])
    assert [isinstance(answer, Answer) for answer in answers] == [True, False, True]
    assert isinstance(answers[1], RowError)
