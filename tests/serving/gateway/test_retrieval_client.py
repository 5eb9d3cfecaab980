import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from fastapi import FastAPI, Request, Response

from qinglan.errors import DataError
from qinglan.rag.sampled_snapshot import sampled_snapshot
from serving.gateway.cache import RetrievalCache
from serving.gateway.retrieval_client import Reply, is_cacheable, read_cacheable_request, read_knowledge_bases
from tests.servers.company_rags import company_rag
from tests.servers.echo_servers import gateway, gateway_config, running


class Rag:
    """A RAG service that counts, and can be told to change, to fail, or to know no snapshots."""

    def __init__(self, lists: bool = True) -> None:
        self.snapshot, self.lists, self.requests, self.at_once, self.most = "s1", lists, 0, 0, 0
        self.replies: list[tuple[int, bytes]] = []
        self.app = FastAPI()
        self.app.add_route("/api/chat/general_rag", self.answer, ["POST"])
        if lists:
            self.app.add_route("/api/knowledge_bases", self.bases, ["GET"])

    async def answer(self, request: Request) -> Response:
        query = (await request.json()).get("rewritten_query")
        self.requests, self.at_once = self.requests + 1, self.at_once + 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0.02)
        self.at_once -= 1
        if self.replies:
            status, body = self.replies.pop(0)
            return Response(body, status)
        data = {"rewritten_query": query, "recall": [], "snapshot": self.snapshot}
        return Response(orjson.dumps({"code": 200, "msg": "success", "data": data}))

    async def bases(self, _: Request) -> Response:
        base = {"tenant_id": "fivedoctors", "kb_name": "default", "snapshot": self.snapshot, "passages": 3}
        return Response(orjson.dumps({"knowledge_bases": [base]}))


@asynccontextmanager
async def client_of(rag_url: str, folder: Path, **rag: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a gateway before the service."""
    config = gateway_config("http://127.0.0.1:9", rag_url, rag=rag)
    async with (
        gateway(config, folder) as url,
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as client,
    ):
        yield client


async def ask(client: httpx.AsyncClient, query: str, **more: Any) -> httpx.Response:
    body = {"query": "问", "rewritten_query": query, "tenant_id": "fivedoctors", **more}
    return await client.post("/api/chat/general_rag", content=orjson.dumps(body))


def answers(folder: Path, rag: Rag, *requests: dict[str, Any], **settings: Any) -> list[httpx.Response]:
    """The gateway's answers to these requests, one after the other, in one run."""

    async def run(url: str) -> list[httpx.Response]:
        async with client_of(url, folder, **settings) as client:
            return [await ask(client, **{"query": "一", **request}) for request in requests]

    with running(rag.app) as url:
        return asyncio.run(run(url))


@pytest.mark.slow
def test_a_retrieval_is_asked_once_even_at_the_same_time_and_in_the_next_run(tmp_path: Path) -> None:
    rag = Rag()

    async def run() -> set[bytes]:
        async with client_of(url, tmp_path) as client:
            return {answer.content for answer in await asyncio.gather(*(ask(client, "一样") for _ in range(10)))}

    with running(rag.app) as url:
        first, second = asyncio.run(run()), asyncio.run(run())
    assert rag.requests == 1
    assert len(first) == 1
    assert first == second


def test_the_order_of_fields_does_not_matter_and_their_values_do(tmp_path: Path) -> None:
    answers(
        tmp_path, rag := Rag(), {"top_k": 5, "need": "需"}, {"need": "需", "top_k": 5}, {"need": "另", "top_k": 5}
    )

    assert rag.requests == 2


def test_another_snapshot_of_the_knowledge_base_is_asked_again(tmp_path: Path) -> None:
    rag, snapshots = Rag(), []
    for rag.snapshot in ("s1", "s2"):
        [answer] = answers(tmp_path, rag, {})
        snapshots.append(answer.json()["data"]["snapshot"])

    assert (snapshots, rag.requests) == (["s1", "s2"], 2)


def test_an_answer_from_a_snapshot_that_changed_in_between_is_not_kept_under_the_old_one(tmp_path: Path) -> None:
    rag = Rag()

    async def run() -> list[str]:
        async with client_of(url, tmp_path) as client:
            await ask(client, "一")
            rag.snapshot = "s2"
            return [(await ask(client, query)).json()["data"]["snapshot"] for query in ("二", "二", "一")]

    with running(rag.app) as url:
        assert asyncio.run(run()) == ["s2", "s2", "s2"]
    assert rag.requests == 4


def test_a_service_without_snapshots_is_remembered_for_this_run_only(tmp_path: Path) -> None:
    rag = Rag(lists=False)
    for run in (1, 2):
        answers(tmp_path, rag, {}, {})
        assert rag.requests == run


@pytest.mark.parametrize("lists", [True, False])
def test_scores_of_a_reranker_that_stood_in_are_passed_on_and_not_kept(tmp_path: Path, lists: bool) -> None:
    rag = Rag(lists)
    data = {"rewritten_query": "一", "recall": [], "snapshot": "s1", "reranker_fallback_reason": "timeout"}
    rag.replies = [(200, orjson.dumps({"code": 200, "msg": "success", "data": data}))]

    results = [answer.json()["data"] for answer in answers(tmp_path, rag, {}, {}, {})]

    assert [result.get("reranker_fallback_reason", "") for result in results] == ["timeout", "", ""]
    assert rag.requests == 2


def test_answers_with_the_deployed_rewriters_query_are_not_cached(tmp_path: Path) -> None:
    answers(tmp_path, rag := Rag(), {"rewritten_query": None}, {"rewritten_query": None})

    assert rag.requests == 2


def test_an_outage_is_503_in_the_contracts_envelope_and_nothing_of_it_is_kept(tmp_path: Path) -> None:
    rag = Rag()
    rag.replies = [(502, b""), (500, b"oops"), (503, b""), (200, b'{"code":500,"msg":"inside","data":null}')]

    results = answers(tmp_path, rag, {}, {}, {})

    assert [(answer.status_code, answer.json()["code"]) for answer in results] == [(503, 503), (200, 500), (200, 200)]
    assert rag.requests == 5


def test_a_refusal_of_the_rag_service_is_passed_on_and_not_retried(tmp_path: Path) -> None:
    rag = Rag()
    rag.replies = [(422, b'{"code":422,"msg":"top_k: too large","data":null}')]

    [answer] = answers(tmp_path, rag, {"top_k": 10_000})

    assert (answer.status_code, answer.json()["msg"], rag.requests) == (422, "top_k: too large", 1)


@pytest.mark.slow
def test_no_more_retrievals_are_under_way_than_the_limit_and_the_report_counts_them(tmp_path: Path) -> None:
    rag = Rag()

    async def run() -> dict[str, Any]:
        async with client_of(url, tmp_path, concurrency=4) as client:
            await asyncio.gather(*(ask(client, str(n % 20)) for n in range(40)))
            report: dict[str, Any] = (await client.get("/v1/journal/report")).json()
            return report

    with running(rag.app) as url:
        report = asyncio.run(run())
    assert 1 < rag.most <= 4
    assert (report["retrieval_hits"], report["retrieval_misses"], report["retrieval_hit_rate"]) == (20, 20, 0.5)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"query":"x","tenant_id":"a"}', b'{"rewritten_query":"x"}'])
def test_a_request_that_cannot_be_cached_is_recognised(body: bytes) -> None:
    assert read_cacheable_request(body) is None


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"knowledge_bases": 3}', b'{"knowledge_bases": [{}]}'])
def test_a_list_of_knowledge_bases_that_is_none_is_none(body: bytes) -> None:
    assert read_knowledge_bases(Reply(200, body)) is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"code": 500}', b'{"code": 200, "data": null}'])
def test_only_a_success_of_the_right_snapshot_is_good(body: bytes) -> None:
    assert not is_cacheable(Reply(200, body), b'{"snapshot": "s1"}')


def test_another_database_is_no_retrieval_cache_and_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"

    async def run() -> None:
        RetrievalCache(path).close()
        path.write_bytes(b"no database" * 1000)
        with pytest.raises(DataError, match="cannot be opened as a database"):
            RetrievalCache(path)

    asyncio.run(run())
    assert path.read_bytes().startswith(b"no database")


def test_a_companys_service_is_translated_and_named_by_its_sampled_answers(tmp_path: Path) -> None:
    logits = {"acme": {"scale": "logit", "slope": 1.0, "intercept": 0.0}}
    rag = {"calibration": logits, "snapshot_queries": ["虾青素一天吃几次", "益生菌要不要放冰箱"]}

    async def run() -> list[dict[str, Any]]:
        async with client_of(url, tmp_path, **rag) as client:
            answers = [await ask(client, "虾青素 服用", tenant_id="acme") for _ in range(2)]
            assert (await client.get("/api/knowledge_bases")).status_code == 404
            return [answer.json()["data"] for answer in answers]

    with company_rag(tmp_path) as (url, service):
        first, second = asyncio.run(run())
        requested = len(service.received)
        again = asyncio.run(run())[0]
        assert len(service.received) == requested + 2  # the samples alone: the answer was kept under their digest
    assert first == second == again
    assert first["snapshot"].startswith("sampled:")
    assert requested == 3
    assert 0 < first["recall"][0]["reranker_score"] < 1


def test_other_sampled_answers_are_another_snapshot() -> None:
    def digest(*ids: str) -> str:
        return sampled_snapshot(["q"], [{"recall": [{"id": name, "content": "x"} for name in ids]}])

    assert digest("a", "b") == digest("b", "a") != digest("a", "c")


def test_an_answer_of_another_shape_is_the_readers_error_and_no_outage(tmp_path: Path) -> None:
    rag = Rag(lists=False)
    rag.replies = [(200, b'{"documents": []}')]

    [answer] = answers(tmp_path, rag, {}, answer={"recall": "result.docs"})

    assert (answer.status_code, rag.requests) == (422, 1)
    assert "no list at result.docs" in answer.json()["msg"]
