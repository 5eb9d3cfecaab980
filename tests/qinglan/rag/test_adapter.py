"""A company's RAG service by its settings alone: path, token, field names and logits, over a real socket."""

import asyncio
import math
from pathlib import Path
from typing import Any

import orjson
import pytest

from qinglan.errors import ConfigError, DataError, OutageError
from qinglan.rag.adapter import RagAdapter
from qinglan.rag.client import RagClient
from qinglan.rag.contract import RagData, RagRequest
from qinglan.rag.service_limits import (
    NO_CONTENT,
    NO_IDS,
    NO_NEED,
    NO_QUERY_SCORE,
    NO_SNAPSHOT,
    REWRITE_AS_QUERY,
    lost_measurements,
    sampled_snapshot,
)
from qinglan.rag.service_shape import RagService
from tests.servers.company_rags import PASSAGES, company_rag

QUESTION = RagRequest(
    query="这个怎么吃", rewritten_query="虾青素软胶囊 每日服用", tenant_id="acme", need="虾青素软胶囊一天吃几次"
)
LOGITS = {"acme": {"scale": "logit", "slope": 0.5, "intercept": -1.0}}
FLAT = {
    "path": "/v2/search",
    "request": {
        "query": "q", "rewritten_query": "q", "tenant_id": "", "kb_name": "", "top_k": "size",
        "score_threshold": "", "need": "",
    },
    "answer": {
        "code": "status", "success_code": 0, "recall": "result.docs", "id": "doc_id", "content": "text",
        "score": "score",
    },
    "extra_body": {"app.name": "qinglan"},
    "calibration": LOGITS,
}  # fmt: skip


def ask(url: str, service: dict[str, Any], request: RagRequest = QUESTION) -> RagData:
    async def once() -> RagData:
        async with RagClient(url, service=RagService.parse(service, "rag"), attempts=1) as client:
            return (await client.retrieve(request)).data

    return asyncio.run(once())


def test_the_plans_contract_with_logits_a_token_and_a_path_is_read_as_probabilities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_RAG_TOKEN", "secret-token")
    settings = {
        "path": "/v2/search", "headers": {"Authorization": "Bearer $ACME_RAG_TOKEN"}, "calibration": LOGITS,
    }  # fmt: skip

    with company_rag(tmp_path, path="/v2/search", token="secret-token") as (url, service):
        data = ask(url, settings)
        raw = [hit["score"] for hit in service._search("虾青素软胶囊 每日服用", {}, 5)]

    assert [hit.reranker_score for hit in data.recall] == [1 / (1 + math.exp(1.0 - 0.5 * score)) for score in raw]
    assert data.recall[0].id == "k1"
    assert data.recall[0].content == PASSAGES["k1"]
    assert (data.scored_against, data.snapshot) == ("query", "")
    assert all(hit.query_score == hit.reranker_score for hit in data.recall)
    assert service.received[0]["rewritten_query"] == "虾青素软胶囊 每日服用"


def test_a_service_with_other_names_is_mapped_and_gets_no_field_that_it_does_not_know(tmp_path: Path) -> None:
    with company_rag(tmp_path, path="/v2/search", layout="flat") as (url, service):
        data = ask(url, FLAT)

    assert service.received == [{"q": "虾青素软胶囊 每日服用", "size": 5, "app": {"name": "qinglan"}}]
    assert (data.recall[0].id, data.recall[0].content) == ("k1", PASSAGES["k1"])
    assert 0 < data.recall[0].reranker_score < 1


def test_a_service_that_rewrites_every_question_answers_a_rewrite_that_is_sent_as_one(tmp_path: Path) -> None:
    with company_rag(tmp_path, rewrites=False, scores="probability") as (url, service):
        with pytest.raises(DataError, match=r"or set rag\.request\.rewritten_query: query"):
            ask(url, {})
        data = ask(url, {"request": {"rewritten_query": "query"}})

    assert service.received[-1]["query"] == QUESTION.rewritten_query
    assert data.recall[0].id == "k1"


def test_a_threshold_is_sent_in_the_services_own_scale() -> None:
    adapter = RagAdapter(RagService.parse({"calibration": LOGITS}, "rag"), "http://rag")
    body = orjson.dumps({"query": "q", "tenant_id": "acme", "score_threshold": 0.5})

    assert orjson.loads(adapter.encode(body))["score_threshold"] == pytest.approx(2.0)
    assert orjson.loads(adapter.encode(body.replace(b"acme", b"other")))["score_threshold"] == 0.5


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (503, OutageError), ("500", OutageError), ("503", OutageError), (429, OutageError), ("429", OutageError),
        (404, DataError), ("404", DataError), ("E500", DataError), ("", DataError), (True, DataError),
        ("-500", DataError), ("５００", DataError),
    ],
)  # fmt: skip
def test_a_code_inside_of_an_answer_is_an_outage_or_a_refusal_however_it_is_written(
    code: Any, failure: type[Exception]
) -> None:
    adapter = RagAdapter(RagService.parse(FLAT, "rag"), "http://rag")
    with pytest.raises(failure):
        adapter.decode(orjson.dumps({"status": code}), b'{"tenant_id": "acme"}')


@pytest.mark.parametrize(
    ("scale", "slope", "intercept", "sent"),
    [
        ("probability", 5.0, 2.0, 0.0),
        ("probability", 0.018, 0.0, 0.0),
        ("probability", 1.0, -50.0, 0.0),
        ("logit", 5.0, 2.0, -1e6),
        ("logit", 0.018, -3.0, -1e6),
    ],
)
def test_a_threshold_of_0_cuts_nothing_in_any_scale(scale: str, slope: float, intercept: float, sent: float) -> None:
    calibration = {"acme": {"scale": scale, "slope": slope, "intercept": intercept}}
    adapter = RagAdapter(RagService.parse({"calibration": calibration}, "rag"), "http://rag")
    body = orjson.dumps({"query": "q", "tenant_id": "acme", "score_threshold": 0.0})

    assert orjson.loads(adapter.encode(body))["score_threshold"] == sent


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", "Bearer abc"),
        ("X-API-Key", "sk-live-123"),
        ("api-key", "abc"),
        ("Ocp-Apim-Subscription-Key", "abc"),
        ("X-Auth-Token", "abc"),
        ("X-Auth", "abc"),
        ("Cookie", "session=abc"),
        ("Set-Cookie", "abc"),
        ("X-Session", "abc"),
        ("Proxy-Authorization", "Basic dXNlcjpwYXNz"),
        ("X-Client-Secret", "abc"),
        ("X-Password", "abc"),
        ("Authorization", "Bearer sk-live-123 $ACME_RAG_TOKEN"),
        ("X-API-Key", "sk-live-1234$ACME_RAG_TOKEN"),
        ("X-Forwarded", "Bearer abc"),
        ("X-API-Key", "$acme_rag_token"),
    ],
)
def test_a_secret_that_is_written_out_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name} holds a secret.*\$RAG_TOKEN"):
        RagService.parse({"headers": {name: value}}, "rag")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", "Bearer $ACME_RAG_TOKEN"),
        ("Authorization", "$ACME_RAG_TOKEN"),
        ("X-API-Key", "$ACME_RAG_TOKEN"),
        ("Cookie", "session=$ACME_RAG_TOKEN; path=/"),
        ("X-Tenant", "acme-2026-production"),
        ("Accept-Language", "zh-CN"),
        ("X-Keyboard", "us"),
    ],
)
def test_a_header_without_a_secret_in_it_is_taken(name: str, value: str) -> None:
    assert RagService.parse({"headers": {name: value}}, "rag").headers == {name: value}


@pytest.mark.parametrize("body", [{"api_key": "k"}, {"auth": {"token": "t"}}, {"list": [{"password": "p"}]}])
def test_a_key_in_a_requests_body_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="a key is in no file"):
        RagService.parse({"extra_body": body}, "rag")


def test_of_two_variables_the_shorter_name_is_no_part_of_the_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG", "AAAA")
    monkeypatch.setenv("RAG_TOKEN", "$RAG-BBBBBBBB")
    adapter = RagAdapter(RagService.parse({"headers": {"X-Key": "$RAG $RAG_TOKEN"}}, "rag"), "http://rag")

    assert adapter.headers == {"X-Key": "AAAA $RAG-BBBBBBBB"}
    assert adapter.hide_secrets(b"$RAG-BBBBBBBB") == b"[secret]"


def test_a_token_comes_from_the_environment_and_is_in_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {"headers": {"X-Key": "$ACME_RAG_TOKEN"}}
    monkeypatch.delenv("ACME_RAG_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="ACME_RAG_TOKEN is not set"):
        RagAdapter(RagService.parse(headers, "rag"), "http://rag")

    monkeypatch.setenv("ACME_RAG_TOKEN", "secret-token")
    adapter = RagAdapter(RagService.parse(headers, "rag"), "http://rag")

    assert adapter.headers == {"X-Key": "secret-token"}
    assert adapter.hide_secrets(b"no such key: secret-token") == b"no such key: [secret]"


def test_what_a_service_costs_is_said() -> None:
    hit = {"id": "k1", "content": "x", "reranker_score": 0.5, "query_score": 0.5}

    def lost(service: dict[str, Any], threshold: float = 0.5, **data: Any) -> list[str]:
        whole = {"rewritten_query": "q", "recall": [hit], "scored_against": "need", "rewriter": "request"}
        answer = RagData.model_validate({**whole, "snapshot": "s", **data})
        return lost_measurements(RagService.parse(service, "rag"), answer, threshold)

    bare = {"id": "", "content": "", "reranker_score": 0.5}

    assert lost({}) == []
    assert lost(FLAT, scored_against="query") == [REWRITE_AS_QUERY, NO_NEED]
    assert lost({}, recall=[bare], snapshot="") == [NO_QUERY_SCORE, NO_IDS, NO_CONTENT, NO_SNAPSHOT]
    assert lost({}, threshold=0.0, recall=[{**hit, "query_score": None}]) == []
    assert lost({"snapshot_queries": ["a", "b"]}, snapshot="") == [sampled_snapshot(2)]
