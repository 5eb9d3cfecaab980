"""The service over real sockets: its answers, its refusals, and what an operator sees."""

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from qinglan.rag.contract import KNOWLEDGE_BASES_PATH, RAG_PATH, RagAnswer, RagRequest
from qinglan.rag.lexical.index import Index, build_index
from serving.rag.app import LARGEST_BODY, create_app, cut_of
from serving.rag.engine import TantivyEngine
from serving.rag.metrics import MOST_VERSIONS, Metrics
from serving.rag.rerank.lexical_reranker import DEFAULT_RERANKER
from tests.servers.hostile_senders import read_response

Running = Callable[[Any], AbstractContextManager[str]]
Engines = dict[tuple[str, str], TantivyEngine]
Ask = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def url(engines: Engines, running: Running) -> Iterator[str]:
    with running(create_app(engines)) as address:
        yield address


def get(url: str, path: str) -> httpx.Response:
    return httpx.get(url + path, trust_env=False, verify=False)


def counted(url: str, name: str, **labels: str) -> float:
    """A sample of /metrics, whatever the order of its labels; 0 when there is none."""
    for line in get(url, "/metrics").text.splitlines():
        result = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if result and dict(re.findall(r'(\w+)="([^"]*)"', result[1] or "")) == labels:
            return float(result[2])
    return 0.0


def test_the_answer_is_the_contract_and_says_what_was_scored(url: str, ask: Ask, kbs: dict[str, Path]) -> None:
    rewritten = "虾青素软胶囊 每日服用频次"

    plain = RagAnswer.model_validate_json(ask(url, rewritten_query=rewritten).content).data
    needed = RagAnswer.model_validate_json(ask(url, rewritten_query=rewritten, need="一天吃几次").content).data

    assert (plain.rewritten_query, plain.rewriter, plain.scored_against) == (rewritten, "request", "query")
    assert plain.recall[0].id == "fivedoctors-0-0"
    assert plain.recall[0].metadata == {"title": rewritten, "item": "虾青素软胶囊"}
    assert needed.scored_against == "need"
    assert [hit.id for hit in needed.recall] == [hit.id for hit in plain.recall]
    assert needed.recall[0].reranker_score < plain.recall[0].reranker_score
    assert plain.snapshot == build_index(kbs["fivedoctors"], kbs["fivedoctors"].parent, "fivedoctors").name


@pytest.mark.parametrize(
    ("calibrated", "sent", "cut"),
    [
        (True, {}, 0.5),
        (True, {"score_threshold": 0.0}, 0.0),
        (True, {"score_threshold": 0.9}, 0.9),
        (False, {}, 0.0),
        (False, {"score_threshold": 0.5}, 0.5),
        (False, {"score_threshold": 0.1}, 0.1),
    ],
)
def test_scores_that_are_no_probabilities_are_only_cut_on_request(
    calibrated: bool, sent: dict[str, float], cut: float
) -> None:
    assert cut_of(RagRequest(query="一天吃几次", tenant_id="acme", **sent), calibrated) == cut


def test_a_tenant_without_labels_gets_passages_for_a_question_in_other_words(url: str) -> None:
    """`qinglan serve rag` on a company's own documents answered most questions with nothing."""
    question = {"query": "冰箱里能放多久", "tenant_id": "fivedoctors"}

    requested, cut = (httpx.post(url + RAG_PATH, json=question | more, trust_env=False, verify=False).json()["data"]
                  for more in ({}, {"score_threshold": 0.5}))  # fmt: skip

    assert len(requested["recall"]) == 5 > len(cut["recall"])


def test_without_a_rewriter_the_plain_query_is_searched_and_the_answer_and_a_metric_say_so(
    url: str, ask: Ask
) -> None:
    labels = {"tenant": "fivedoctors", "reason": "no rewriter configured"}
    before = counted(url, "qinglan_rag_fallbacks_total", **labels)

    data = ask(url).json()["data"]

    assert data["rewritten_query"] == "虾青素软胶囊一天吃几次"
    assert (data["rewriter"], data["fallback_reason"]) == ("fallback", "no rewriter configured")
    assert counted(url, "qinglan_rag_fallbacks_total", **labels) == before + 1


def test_tenants_never_see_each_others_passages(url: str, ask: Ask) -> None:
    both = "虾青素软胶囊 考研英语基础班 每日服用频次 退换货政策"

    for tenant in ("fivedoctors", "chengla"):
        recall = ask(url, tenant_id=tenant, query=both, top_k=100).json()["data"]["recall"]
        assert recall
        assert {hit["id"].split("-")[0] for hit in recall} == {tenant}


def test_two_knowledge_bases_of_one_tenant_stay_apart(
    kbs: dict[str, Path], tmp_path: Path, running: Running, ask: Ask
) -> None:
    opened = {
        ("fivedoctors", name): TantivyEngine(
            Index.open(build_index(path, tmp_path, "fivedoctors", name)), DEFAULT_RERANKER
        )
        for name, path in (("default", kbs["fivedoctors"]), ("courses", kbs["chengla"]))
    }

    with running(create_app(opened)) as url:
        recall = ask(url, kb_name="courses", query="考研英语基础班 虾青素软胶囊", top_k=100).json()["data"]["recall"]

    assert {hit["id"].split("-")[0] for hit in recall} == {"chengla"}


@pytest.mark.parametrize(
    ("fields", "status", "field"),
    [
        ({"tenant_id": "nobody"}, 404, "tenant_id"),
        ({"kb_name": "other"}, 404, "kb_name"),
        ({"tenant_id": "../etc"}, 422, "tenant_id"),
        ({"tenant_id": None}, 422, "tenant_id"),
        ({"query": ""}, 422, "query"),
        ({"query": " \n"}, 422, "query"),
        ({"query": "长" * 34_000}, 422, "query"),
        ({"query": 7}, 422, "query"),
        ({"rewritten_query": ""}, 422, "rewritten_query"),
        ({"need": ""}, 422, "need"),
        ({"top_k": 0}, 422, "top_k"),
        ({"top_k": 10_000}, 422, "top_k"),
        ({"score_threshold": -0.1}, 422, "score_threshold"),
        ({"score_threshold": 1.1}, 422, "score_threshold"),
        ({"topk": 5}, 422, "topk"),
    ],
)
def test_a_wrong_field_is_refused_by_name(
    url: str, ask: Ask, fields: dict[str, Any], status: int, field: str
) -> None:
    response = ask(url, **fields)

    assert response.status_code == status
    body = response.json()
    assert (body["code"], body["data"]) == (status, None)
    assert body["msg"].startswith(f"{field}: ")
    assert "chengla" not in body["msg"]
    assert len(body["msg"]) < 300


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b'{"query": ', 422),
        (b'"text"', 422),
        (b"", 422),
        (b'{"query":"\\ud800","tenant_id":"fivedoctors"}', 422),
        (b'{"query":"x","tenant_id":"fivedoctors","score_threshold":NaN}', 422),
        (b"[" * 200_000, 400),
        (b'{"query":"\xff"}', 400),
        (b'{"query":"x","tenant_id":"fivedoctors","tenant_id":"chengla"}', 400),
        (b'{"query":"x","tenant_id":"fivedoctors","tenant\\u005fid":"chengla"}', 400),
        (b'{"query":"x","rewritten_query":"a","rewritten_query":"b","tenant_id":"fivedoctors"}', 400),
        (b'{"query":"x","tenant_id":"fivedoctors","kb_name":"default","kb_name":"default"}', 400),
        (b'{"query":"' + b"x" * LARGEST_BODY + b'"}', 413),
    ],
)
def test_a_body_that_is_no_request_is_refused_in_the_same_envelope(url: str, content: bytes, status: int) -> None:
    response = httpx.post(
        url + RAG_PATH, content=content, headers={"content-type": "application/json"}, trust_env=False, verify=False
    )

    assert response.status_code == status
    assert response.json() == {"code": status, "msg": response.json()["msg"], "data": None}
    assert response.json()["msg"]


@pytest.mark.parametrize("header", [b"content-length: 50000000", b"transfer-encoding: chunked"])
def test_a_body_of_many_megabytes_is_refused_before_it_is_read(url: str, header: bytes) -> None:
    chunk = b"%x\r\n" % (LARGEST_BODY + 1) if b"chunked" in header else b""
    request = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n%s\r\n\r\n" % (
        RAG_PATH.encode(), header,
    )  # fmt: skip

    with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=120) as connection:
        connection.sendall(request + chunk + b"x" * (LARGEST_BODY + 1))
        status, answer = read_response(connection)

    assert status == 413
    assert b'"msg":"body: larger than' in answer


def test_knowledge_bases_are_listed_with_their_digests(url: str, engines: Engines) -> None:
    listed = get(url, KNOWLEDGE_BASES_PATH).json()["knowledge_bases"]

    assert listed == [engine.knowledge_base.model_dump() for engine in engines.values()]


def test_an_operator_is_told_whose_scores_are_not_calibrated(url: str) -> None:
    assert get(url, "/healthz").json() == {"status": "ok", "uncalibrated_tenants": ["chengla", "fivedoctors"]}


def test_ready_means_that_indexes_are_open(url: str, running: Running) -> None:
    assert get(url, "/readyz").status_code == 200
    with running(create_app({})) as empty:
        assert get(empty, "/readyz").status_code == 503


def test_requests_latency_and_zero_hits_are_counted_by_tenant_and_rewriter(
    engines: Engines, running: Running, ask: Ask
) -> None:
    with running(create_app(engines)) as url:
        ask(url, rewritten_query="虾青素")
        ask(url, rewritten_query="zzzz")
        labels = {"tenant": "fivedoctors", "rewriter": "request"}

        assert counted(url, "qinglan_rag_requests_total", **labels, status="200") == 2
        assert counted(url, "qinglan_rag_seconds_count", **labels) == 2
        assert counted(url, "qinglan_rag_zero_hits_total", **labels) == 1


def test_names_that_callers_type_never_become_labels(engines: Engines, running: Running, ask: Ask) -> None:
    with running(create_app(engines)) as url:
        for number in range(9):
            ask(url, tenant_id=f"tenant{number}")
        text = get(url, "/metrics").text

        assert "tenant1" not in text
        assert counted(url, "qinglan_rag_requests_total", tenant="unknown", rewriter="unknown", status="404") == 9


def test_however_many_versions_a_rewriter_claims_the_labels_stay_few_and_the_newest_is_counted() -> None:
    metrics = Metrics()

    for number in range(500):
        metrics.answered("fivedoctors", f"v{number}", 0.001, 0)
        metrics.answered("fivedoctors", "stable", 0.001, 1)
        metrics.answered("fivedoctors", "fallback", 0.001, 1)

    text = metrics.text().decode()
    for counter in ("requests_total", "zero_hits_total", "seconds_count"):
        observed = set(re.findall(counter + r'\{rewriter="([^"]*)"', text))
        newest = {f"v{number}" for number in range(501 - MOST_VERSIONS, 500)}
        assert observed == newest | (set() if counter == "zero_hits_total" else {"stable", "fallback"})
