"""The client: an answer is the contract or an error that says what came instead."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
import stamina

from qinglan.errors import ConfigError, DataError, OutageError
from qinglan.rag.client import RagClient
from qinglan.rag.contract import RagAnswer, RagRequest
from qinglan.rag.retrieval import RetrievalConfig, known_query_score
from tests.servers.echo_servers import Reply, Scripted, running

REQUEST = RagRequest(
    query="一天吃几次", rewritten_query="虾青素 服用频次", tenant_id="fivedoctors", need="虾青素一天吃几次"
)
HIT = {"id": "p1", "content": "每日一次", "reranker_score": 0.9}
OLDER = {"code": 200, "msg": "success", "data": {"rewritten_query": "虾青素 服用频次", "recall": [HIT]}}


def reply(body: Any, status: int = 200, **headers: str) -> Reply:
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    return Reply(status, content, {name.replace("_", "-"): value for name, value in headers.items()})


@contextmanager
def service(*replies: Reply) -> Iterator[tuple[str, list[Any]]]:
    """A server that gives these replies in turn, the last one again and again; and the requests to it."""
    app = Scripted(*replies)
    with running(app) as url:
        yield url, app.requests


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """Retries happen at once, and as often as in production."""
    with stamina.set_testing(True, attempts=9, cap=True):
        yield


def ask(url: str, request: RagRequest = REQUEST, **options: Any) -> RagAnswer:
    async def once() -> RagAnswer:
        async with RagClient(url, **options) as client:
            return await client.retrieve(request)

    return asyncio.run(once())


def test_an_older_service_is_understood_and_says_nothing_it_does_not_know() -> None:
    with service(reply({**OLDER, "took": 3})) as (url, received):
        data = ask(url).data

    assert [orjson.loads(body) for _, body, _ in received] == [{
        "query": "一天吃几次", "rewritten_query": "虾青素 服用频次", "tenant_id": "fivedoctors", "kb_name": "default",
        "top_k": 5, "score_threshold": 0.5, "need": "虾青素一天吃几次",
    }]  # fmt: skip
    assert [(hit.id, hit.query_score) for hit in data.recall] == [("p1", 0.9)]
    assert (data.scored_against, data.rewriter, data.snapshot) == ("query", "request", "")


def test_productions_cut_goes_by_the_scores_against_the_query_where_they_are_sent() -> None:
    scored = {"scored_against": "need", "reranker_digest": "r"}
    bodies = [{**OLDER, "data": {"recall": [{**HIT, **more}], **scored}} for more in ({"query_score": 0.4}, {})]
    with service(*map(reply, bodies)) as (url, _):
        data, silent = ask(url).data, ask(url).data

    assert data.reranker_digest == "r"
    assert [len(RetrievalConfig(score_threshold=cut).shown(data)) for cut in (0.0, 0.4, 0.5)] == [1, 1, 0]
    assert len(RetrievalConfig(score_threshold=1.0).shown(silent)) == 1
    with pytest.raises(ConfigError, match=r"query_score.*anchored_v2"):
        known_query_score(silent.recall[0].query_score)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_service_is_asked_again(status: int) -> None:
    with service(reply({"msg": "busy"}, status, retry_after="1"), reply(OLDER)) as (url, received):
        assert ask(url).data.recall

    assert len(received) == 2


def test_a_refusal_is_not_retried_and_carries_the_services_own_words() -> None:
    with (
        service(reply({"code": 422, "msg": "top_k: too many", "data": None}, 422)) as (url, received),
        pytest.raises(DataError) as raised,
    ):
        ask(url)

    assert "top_k: too many" in str(raised.value)
    assert len(received) == 1


@pytest.mark.parametrize(
    ("sent", "kind", "message"),
    [
        (reply(b"<html>login</html>"), DataError, "not JSON; it begins with '<html>login"),
        (reply([1]), DataError, r"no list at data\.recall.*the answer holds \[\] \(int\)"),
        (reply({"code": 500, "msg": "boom"}), OutageError, "code is 500 inside status 200: 'boom'"),
        (reply({"code": 0, "data": {"recall": []}}), DataError, r"success_code: 0"),
        (reply({"code": 200, "data": {}}), DataError, r"no list at data\.recall"),
        (reply({"code": 200, "result": {"docs": [{"text": "x"}]}}), DataError, r"result\.docs\[\]\.text \(str\)"),
        (reply({"code": 200, "data": {"recall": ["x"]}}), DataError, "'x' where a passage belongs"),
        (reply({"code": 200, "data": {"recall": [{"id": "p1"}]}}), DataError, "without reranker_score.*check-rag"),
        (reply({**OLDER, "data": {"recall": [{"reranker_score": "high"}]}}), DataError, "'high' where a score"),
        (
            reply({**OLDER, "data": {"rewritten_query": "别的", "recall": [HIT]}}), DataError,
            "does not take rewritten_query",
        ),
        (reply(b"Internal Server Error", 500), OutageError, "status 500: 'Internal"),
        (reply(b"", 302, location="http://elsewhere.invalid/"), DataError, "status 302"),
    ],
)  # fmt: skip
def test_an_answer_of_another_shape_says_what_it_is_and_only_a_failing_service_is_an_outage(
    sent: Reply, kind: type[Exception], message: str
) -> None:
    with service(sent) as (url, _), pytest.raises(kind, match=message):
        ask(url)


def test_a_service_that_sends_nothing_but_scores_is_enough() -> None:
    with service(reply({"data": {"recall": [{"reranker_score": 0.7}]}})) as (url, _):
        data = ask(url).data

    assert [(hit.id, hit.content, hit.reranker_score, hit.query_score) for hit in data.recall] == [("", "", 0.7, 0.7)]


@pytest.mark.parametrize("score", [-0.01, 1.2, 17])
def test_a_score_that_is_no_probability_asks_for_calibration(score: float) -> None:
    body = {**OLDER, "data": {"recall": [{**HIT, "reranker_score": score}]}}

    with service(reply(body)) as (url, _), pytest.raises(DataError, match=r"gateway\.rag\.calibration\.fivedoctors"):
        ask(url)


FELL_BACK = {**OLDER, "data": {"recall": [HIT], "reranker": "local", "reranker_fallback_reason": "timeout"}}


def test_scores_of_a_reranker_that_stood_in_are_asked_for_again() -> None:
    scored = {**OLDER, "data": {"recall": [HIT], "reranker": "service", "reranker_fallback_reason": ""}}

    with service(reply(FELL_BACK), reply(scored)) as (url, received):
        data = ask(url).data

    assert (data.reranker, data.reranker_fallback_reason) == ("service", "")
    assert len(received) == 2


def test_scores_that_keep_falling_back_are_an_outage_and_never_a_score() -> None:
    with service(reply(FELL_BACK)) as (url, received), pytest.raises(OutageError) as raised:
        ask(url, attempts=3)

    assert "its reranker gave no scores (timeout); the local score in its place is another scale" in str(raised.value)
    assert len(received) == 3


def test_a_passage_that_speaks_of_a_fallback_is_none() -> None:
    hit = {**HIT, "content": '"reranker_fallback_reason":"timeout"', "metadata": {"reranker_fallback_reason": "x"}}

    with service(reply({**OLDER, "data": {"recall": [hit]}})) as (url, _):
        assert ask(url).data.recall[0].content == hit["content"]


def test_a_wrong_address_is_never_an_empty_answer() -> None:
    with service(reply(b"<html>hello</html>")) as (url, _), pytest.raises(DataError, match="not JSON"):
        ask(url)
