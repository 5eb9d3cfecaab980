"""A reranker over HTTP, asked in both dialects: what it says is believed whole or not at all."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, cast

import orjson
import pytest

from qinglan.errors import ConfigError
from qinglan.rag.client import RERANKER_RETRY_SECONDS
from serving.rag import reranker_client
from serving.rag.config import RerankServiceConfig
from serving.rag.reranker_client import (
    API_KEY,
    FAILURES,
    PROBE_SECONDS,
    RerankerClient,
    read_info,
    read_scores,
    request_body,
)
from serving.rag.service_client import ServiceError
from tests.servers.rerankers import FakeReranker, Fault

Running = Callable[[Any], AbstractContextManager[str]]
Kind = Literal["vllm", "tei"]
KINDS: tuple[Kind, ...] = ("vllm", "tei")

TEXT = "鱼油软胶囊要不要放冰箱"
DOCUMENTS = ["益生菌冻干粉的退换货政策", "鱼油软胶囊要不要放冰箱？阴凉处即可", "鱼油软胶囊一天吃几次", "zz"]
PATIENT = {"model": "overlap", "deadline_seconds": 30}
VLLM = RerankServiceConfig.parse({"kind": "vllm", "url": "http://127.0.0.1", **PATIENT}, "test")
TEI = RerankServiceConfig.parse({"kind": "tei", "url": "http://127.0.0.1", **PATIENT}, "test")


REFUSED: tuple[Fault, ...] = ("limited", "broken")
MALFORMED: tuple[Fault, ...] = ("html", "nan", "missing", "twice", "stranger")


def scores(url: str, kind: Kind, documents: list[str] = DOCUMENTS, **settings: Any) -> list[float]:
    async def once() -> list[float]:
        service = RerankerClient(RerankServiceConfig(kind=kind, url=url, **{**PATIENT, **settings}))
        try:
            return await service.scores(TEXT, documents)
        finally:
            await service.aclose()

    return asyncio.run(once())


@pytest.mark.parametrize("kind", KINDS)
def test_scores_come_in_the_order_of_the_documents_though_the_best_is_told_first(
    running: Running, kind: Kind
) -> None:
    with running(FakeReranker().app) as url:
        result = scores(url, kind)

    assert result[1] > result[2] > result[0] >= result[3]
    assert all(0 <= score <= 1 for score in result)


@pytest.mark.parametrize("kind", KINDS)
def test_many_documents_go_in_batches_and_not_more_at_once_than_allowed(running: Running, kind: Kind) -> None:
    stand_in = FakeReranker(latency=0.2)
    documents = [f"{TEXT}{number}" for number in range(50)]

    with running(stand_in.app) as url:
        result = scores(url, kind, documents, batch=8, concurrency=3)
        whole = scores(url, kind, documents, batch=32)

    assert sorted(stand_in.documents[:7]) == [2, 8, 8, 8, 8, 8, 8]
    assert stand_in.most_under_way == 3
    assert result == whole


def test_tei_is_never_sent_more_than_it_says_it_takes(running: Running) -> None:
    stand_in = FakeReranker(max_batch=3)

    with running(stand_in.app) as url:
        assert len(scores(url, "tei")) == 4

    assert sorted(stand_in.documents) == [1, 3]


MANY = [f"{TEXT}{number}" for number in range(40)]
FAILURES_BY_KIND: list[tuple[FakeReranker, dict[str, Any], dict[Kind, str]]] = [
    *((FakeReranker(fault=fault), {}, dict.fromkeys(KINDS, "refused")) for fault in REFUSED),
    *((FakeReranker(fault=fault), {}, dict.fromkeys(KINDS, "malformed")) for fault in MALFORMED),
    (FakeReranker(model="newer"), {}, {"vllm": "refused", "tei": "other_model"}),
    # The deadline is for all batches together: each of these requests would be in time.
    (
        FakeReranker(latency=0.2),
        {"documents": MANY, "batch": 1, "concurrency": 1, "deadline_seconds": 1},
        dict.fromkeys(KINDS, "timeout"),
    ),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("server", "settings", "reasons"), FAILURES_BY_KIND)
def test_an_incomplete_answer_gives_no_scores_and_a_reason(
    running: Running, kind: Kind, server: FakeReranker, settings: Any, reasons: dict[Kind, str]
) -> None:
    with running(server.app) as url, pytest.raises(ServiceError, match=reasons[kind]):
        scores(url, kind, **settings)


def test_a_restarted_tei_with_another_model_is_refused(running: Running) -> None:
    server = FakeReranker()

    async def run(url: str) -> list[str]:
        client, messages = RerankerClient(TEI.model_copy(update={"url": url})), list[str]()
        for model, fault in (("overlap", ""), ("overlap", "broken"), ("newer", "")):
            server.model, server.fault = model, cast(Fault, fault)
            messages.append(await failure(client))
        await client.aclose()
        return messages

    with running(server.app) as url:
        assert asyncio.run(run(url)) == ["", "refused", "other_model"]


def test_a_service_that_keeps_failing_is_left_alone(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reranker_client, "PROBE_SECONDS", 1000.0)
    stand_in = FakeReranker(fault="broken")

    with running(stand_in.app) as url:
        output = asyncio.run(reasons(url, 10))

    assert output == ["refused"] * FAILURES + ["circuit_open"] * (10 - FAILURES)
    assert len(stand_in.documents) == FAILURES


def test_once_it_answers_again_it_is_asked_again(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reranker_client, "PROBE_SECONDS", 0.0)
    stand_in = FakeReranker(fault="broken")

    with running(stand_in.app) as url:
        output = asyncio.run(reasons(url, 10, lambda: setattr(stand_in, "fault", "")))

    assert output == ["refused"] * 5 + [""] * 5


def test_the_client_retries_after_the_services_next_probe() -> None:
    assert RERANKER_RETRY_SECONDS > PROBE_SECONDS


async def failure(client: RerankerClient) -> str:
    """Reason why a call failed; empty if it did not."""
    try:
        await client.scores(TEXT, DOCUMENTS)
    except ServiceError as error:
        return str(error)
    return ""


async def reasons(url: str, calls: int, halfway: Callable[[], None] = lambda: None) -> list[str]:
    """Reasons of consecutive calls."""
    client, messages = RerankerClient(VLLM.model_copy(update={"url": url})), list[str]()
    for number in range(calls):
        if number == calls // 2:
            halfway()
        messages.append(await failure(client))
    await client.aclose()
    return messages


def test_each_dialect_is_asked_as_its_documentation_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert request_body(VLLM, "q", ["d"]) == (
        "/v1/rerank", {"model": "overlap", "query": "q", "documents": ["d"], "truncate_prompt_tokens": -1},
    )  # fmt: skip
    assert request_body(TEI, "q", ["d"]) == ("/rerank", {"query": "q", "texts": ["d"], "truncate": True})


def test_a_key_comes_from_the_environment_and_goes_as_a_bearer_token(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed: list[bytes] = []
    app = FakeReranker().app

    async def watcher(scope: Any, receive: Any, send: Any) -> None:
        observed.extend(value for name, value in scope.get("headers", ()) if name == b"authorization")
        await app(scope, receive, send)

    monkeypatch.setenv(API_KEY, "secret")
    with running(watcher) as url:
        scores(url, "vllm")

    assert observed == [b"Bearer secret"]


@pytest.mark.parametrize(
    ("config", "body"),
    [
        (VLLM, {}),
        (VLLM, []),
        (VLLM, {"results": None}),
        (VLLM, {"results": [{"index": 0}]}),
        (VLLM, {"results": [{"index": [0], "relevance_score": 0.5}]}),
        (VLLM, {"results": [{"index": 0, "relevance_score": True}]}),
        (VLLM, {"results": [{"index": "0", "relevance_score": 0.5}]}),
        (TEI, {"index": 0, "score": 0.5}),
        (TEI, [{"index": 0, "score": None}]),
        (TEI, [{"index": 0, "score": 0.1}, {"index": 0, "score": 0.2}]),
        (TEI, [0.5]),
    ],
)
def test_an_answer_that_is_not_the_dialect_is_malformed(config: RerankServiceConfig, body: Any) -> None:
    with pytest.raises(ServiceError, match="malformed"):
        read_scores(config, orjson.dumps(body), 1)


def test_a_number_beyond_all_numbers_is_malformed() -> None:
    with pytest.raises(ServiceError, match="malformed"):
        read_scores(TEI, b'[{"index": 0, "score": 1e999}]', 1)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"model_id": "m", "max_client_batch_size": 0}'])
def test_an_incomplete_tei_info_is_refused(content: bytes) -> None:
    with pytest.raises(ServiceError, match="malformed"):
        read_info(content)


def test_the_rerank_service_is_configured_by_one_line() -> None:
    read = RerankServiceConfig.read("tei=http://gpu:8080,model=BAAI/bge-reranker-v2-m3,deadline_seconds=0.3,batch=16")

    assert (read.kind, read.url, read.deadline_seconds, read.batch) == ("tei", "http://gpu:8080", 0.3, 16)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http://gpu", "kind"),
        ("cohere=http://gpu,model=m", "kind"),
        ("vllm=gpu,model=m", "url"),
        ("vllm=http://gpu", "model: Field required"),
        ("vllm=http://gpu,model=m,deadline_seconds=0", "deadline_seconds"),
        ("vllm=http://gpu,model=m,speed=9", "speed"),
    ],
)
def test_a_line_that_cannot_be_meant_is_refused_by_its_field(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RerankServiceConfig.read(text)
