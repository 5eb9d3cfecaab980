"""The way to OpenSearch where it answers badly or not at all: a stand-in over real sockets says what a test wants."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import Mock

import httpx
import orjson
import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from hypothesis import given
from hypothesis import strategies as st

from qinglan.errors import ConfigError, DataError, OutageError
from serving.rag.app import create_app
from serving.rag.config import KnowledgeBaseSource, RagConfig, RerankServiceConfig
from serving.rag.engine import EngineUnavailable, SnapshotGone
from serving.rag.lru_cache import LruCache
from serving.rag.opensearch.cluster_client import OUTAGE_AFTER, PROBE_SECONDS, ClusterClient
from serving.rag.opensearch.engine import AliasEngine, read_served_index
from serving.rag.opensearch.index_layout import FORMAT, IndexMetadata, alias_of, index_of
from serving.rag.opensearch.loader import first_missing, read_outcome, send_bulk
from serving.rag.opensearch.outage_retry import OutageRetry
from serving.rag.opensearch_connection import OpenSearchConfig, connect_to_load
from serving.rag.rerank.lexical_reranker import DEFAULT_RERANKER
from serving.rag.server import open_engines

pytestmark = pytest.mark.slow

Running = Callable[[Any], AbstractContextManager[str]]
Ask = Callable[..., httpx.Response]
Result = TypeVar("Result")
NOTES = IndexMetadata(format=FORMAT, tenant_id="demo", kb_name="default", snapshot="abc", passages=3, whole=True)
INDEX = index_of("demo", "default", "abc")
HIT = {"timed_out": False, "_shards": {"failed": 0}, "hits": {"hits": []}}


class StandIn:
    """Answers everything with what it is told to; it counts how often it was asked."""

    def __init__(self) -> None:
        self.app = FastAPI()
        self.requests = 0
        self.pause = 0.0
        self.status, self.content = 200, orjson.dumps(HIT)
        self.named = ""
        """The one index that the alias names; where this is empty, the alias's question is answered like the rest."""
        self.app.add_api_route("/demo/_mapping", self.mapping, methods=["GET"])
        self.app.add_api_route("/{path:path}", self.answer, methods=["GET", "POST", "PUT"])

    async def answer(self, request: Request) -> Response:
        self.requests += 1
        await asyncio.sleep(self.pause)
        return Response(self.content, self.status, media_type="application/json")

    async def mapping(self, request: Request) -> Response:
        return JSONResponse({self.named: {}}) if self.named else await self.answer(request)


@pytest.fixture
def stand_in() -> StandIn:
    return StandIn()


@pytest.fixture
def url(stand_in: StandIn, running: Running) -> Iterator[str]:
    with running(stand_in.app) as address:
        yield address


def with_cluster(url: str, do: Callable[[ClusterClient], Awaitable[Result]], deadline: float = 5.0) -> Result:
    async def run() -> Result:
        cluster = ClusterClient(OpenSearchConfig(url=url, deadline_seconds=deadline))
        try:
            return await do(cluster)
        finally:
            await cluster.aclose()

    return asyncio.run(run())


async def reason(cluster: ClusterClient) -> str:
    try:
        await cluster.read("demo", "demo.older", "_search", {})
    except EngineUnavailable as away:
        return away.reason
    return "answered"


@pytest.mark.parametrize(
    ("status", "content", "expected"),
    [
        (200, HIT, "answered"),
        (200, {**HIT, "timed_out": True}, "partial"),
        (200, {**HIT, "_shards": {"failed": 1}}, "partial"),
        (200, [], "malformed"),
        (429, {"error": "full"}, "busy"),
        (503, {"error": {"root_cause": [{"reason": "all shards failed"}]}}, "failed"),
        (401, {"error": "who are you"}, "refused"),
    ],
)
def test_only_a_whole_answer_is_one(status: int, content: Any, expected: str, stand_in: StandIn, url: str) -> None:
    stand_in.status, stand_in.content = status, orjson.dumps(content)

    assert with_cluster(url, reason) == expected


@pytest.mark.parametrize("named", ["demo.older", ""])
def test_an_index_that_fails_while_its_alias_names_it_or_nobody_can_say_is_an_outage(
    named: str, stand_in: StandIn, url: str
) -> None:
    stand_in.status, stand_in.named = 503, named

    assert with_cluster(url, reason) == "failed"


def test_an_answer_that_is_no_json_is_none(stand_in: StandIn, url: str) -> None:
    stand_in.content = b"<html>"

    assert with_cluster(url, reason) == "malformed"


def test_a_search_ends_at_its_deadline(stand_in: StandIn, url: str) -> None:
    stand_in.pause = 3.0

    assert with_cluster(url, reason, deadline=0.2) == "timeout"


@pytest.mark.parametrize("status", [404, 503])
def test_a_deleted_index_is_no_outage(status: int, stand_in: StandIn, url: str) -> None:
    """An index that is deleted under a search gives either."""
    stand_in.status, stand_in.named = status, "demo.newer"

    async def ask_often(cluster: ClusterClient) -> list[str]:
        observed = []
        for _ in range(OUTAGE_AFTER + 1):
            with pytest.raises(SnapshotGone):
                await cluster.read("demo", "demo.older", "_search", {})
        stand_in.status, stand_in.content = 200, orjson.dumps(HIT)
        observed.append(await reason(cluster))
        return observed

    assert with_cluster(url, ask_often) == ["answered"]


def test_a_cluster_that_is_away_is_asked_once_in_a_while_until_it_is_back(stand_in: StandIn, url: str) -> None:
    async def outage(cluster: ClusterClient) -> tuple[list[str], int, list[str], str]:
        stand_in.status = 503
        first = [await reason(cluster) for _ in range(OUTAGE_AFTER)]
        requested = stand_in.requests
        then = [await reason(cluster) for _ in range(20)]
        unasked = stand_in.requests - requested
        await asyncio.sleep(PROBE_SECONDS + 0.1)
        stand_in.status = 200
        probe = await reason(cluster)
        return first, unasked, then, probe

    first, unasked, then, probe = with_cluster(url, outage)

    assert first == ["failed"] * OUTAGE_AFTER
    assert "open" in then
    assert unasked < 20, "most were answered without asking"
    assert probe == "answered"


def test_the_service_says_an_outage_and_is_not_ready(stand_in: StandIn, url: str, running: Running, ask: Ask) -> None:
    stand_in.status = 503
    cluster = ClusterClient(OpenSearchConfig(url=url))
    engines = {("demo", "default"): AliasEngine(cluster, "demo", "default", DEFAULT_RERANKER)}
    with running(create_app(engines, cluster=cluster)) as service:
        answer = ask(service, tenant_id="demo")
        ready = httpx.get(f"{service}/readyz", trust_env=False)
        alive = httpx.get(f"{service}/healthz", trust_env=False)
        counted = httpx.get(f"{service}/metrics", trust_env=False).text

    body = answer.json()
    assert (answer.status_code, body["code"], body["data"]) == (503, 503, None)
    assert answer.headers["retry-after"] == "2"
    assert "gives no answer (failed)" in body["msg"]
    assert (ready.status_code, alive.status_code) == (503, 200)
    assert 'qinglan_rag_engine_outages_total{reason="failed"} 2.0' in counted
    assert 'qinglan_rag_requests_total{rewriter="unknown",status="503",tenant="unknown"} 2.0' in counted


def mapping(**changes: Any) -> dict[str, Any]:
    notes = {**NOTES.model_dump(), **changes}
    return {"mappings": {"_meta": {"qinglan": notes}}}


def test_an_alias_names_one_whole_index_of_ours() -> None:
    assert read_served_index("demo", "default", {INDEX: mapping()}) == (INDEX, NOTES)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"one": mapping(), "two": mapping()}, "names 2 indexes"),
        ({"one": {"mappings": {}}}, "not an index of ours"),
        ({"one": mapping(passages="many")}, "passages"),
        ({"one": mapping(format=FORMAT + 1)}, f"has format {FORMAT + 1} and this version reads {FORMAT}"),
        ({INDEX: mapping(whole=False)}, "was not loaded to its end"),
        ({index_of("other", "default", "abc"): mapping(tenant_id="other")}, "did not fill for demo/default"),
        ({index_of("demo", "other", "abc"): mapping(kb_name="other")}, "did not fill for demo/default"),
        ({INDEX: mapping(tenant_id="other")}, "did not fill for demo/default"),
        ({INDEX + ".copy": mapping()}, "did not fill for demo/default"),
    ],
)
def test_an_alias_that_names_anything_else_is_explained(answer: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_served_index("demo", "default", answer)

    assert "oad" in str(caught.value), "the next step is to load it"


def test_passages_of_another_tenant_are_never_searched(stand_in: StandIn, url: str) -> None:
    """Whoever switches an alias by hand to another's index: the known one goes on, and without one nobody answers."""
    foreign = {index_of("other", "default", "abc"): mapping(tenant_id="other")}

    async def polled(cluster: ClusterClient) -> tuple[str, str]:
        stand_in.content = orjson.dumps(foreign)
        engine = AliasEngine(cluster, "demo", "default", DEFAULT_RERANKER)
        with pytest.raises(EngineUnavailable) as caught:
            await engine.search("鱼油", 5)
        stand_in.content = orjson.dumps({INDEX: mapping()})
        known = (await engine.current(gone=True)).index
        stand_in.content = orjson.dumps(foreign)
        assert (await engine.current(gone=True)).index == known
        return caught.value.reason, known

    assert with_cluster(url, polled) == ("not loaded", INDEX)


def test_tenant_and_knowledge_base_have_an_alias_of_their_own() -> None:
    assert alias_of("a-b", "c") != alias_of("a", "b-c")
    assert index_of("a", "b", "0" * 64).startswith(alias_of("a", "b") + ".")
    longest = index_of("t" * 63, "k" * 63, "0" * 64)
    assert len(longest.encode()) <= 255, "OpenSearch takes no longer name"


@given(st.sets(st.integers(0, 40)), st.integers(0, 41))
def test_a_load_goes_on_at_the_first_passage_that_is_not_there(present: set[int], passages: int) -> None:
    result = first_missing(lambda end: sum(number < end for number in present), passages)

    assert result == next((number for number in range(passages) if number not in present), passages)


def bulk_answer(*items: tuple[int, int]) -> bytes:
    error = {"reason": "x"}
    return orjson.dumps(
        {"items": [{"create": {"_id": str(number), "status": status, "error": error}} for number, status in items]}
    )


def test_a_document_that_is_rejected_for_now_is_sent_again_alone(running: Running) -> None:
    bodies: list[list[str]] = []
    app = FastAPI()

    @app.post("/{path:path}")
    async def bulk(request: Request) -> Response:
        lines = (await request.body()).splitlines()
        numbers = [orjson.loads(line)["create"]["_id"] for line in lines[::2]]
        bodies.append(numbers)
        statuses = [(int(number), 429 if len(bodies) == 1 and number == "1" else 201) for number in numbers]
        return Response(bulk_answer(*statuses), media_type="application/json")

    pairs = iter([({"create": {"_id": str(number)}}, "{}") for number in range(3)])
    with running(app) as url:
        client = connect_to_load(OpenSearchConfig(url=url))
        outcomes = list(send_bulk(client, "x", pairs))
        client.close()

    assert bodies == [["0", "1", "2"], ["1"]]
    assert sorted(outcome.number for outcome in outcomes if outcome.created) == [0, 1, 2]


@pytest.mark.parametrize("status", [403, 404, 429, 500, 503])
def test_a_refusal_by_the_cluster_is_no_fault_of_a_passage(status: int) -> None:
    with pytest.raises(OutageError, match=f"passage 7 was not taken, status {status}: read-only"):
        read_outcome({"_id": "7", "status": status, "error": {"reason": "read-only"}})


@pytest.mark.parametrize(
    ("status", "content", "cause"),
    [
        (
            403,
            {"error": {"type": "security_exception", "reason": "no rights"}, "status": 403},
            "status 403, no rights",
        ),
        (503, {"error": {"reason": "x", "caused_by": {"reason": "no master"}}}, "status 503, x; no master"),
    ],
)
def test_a_refusal_by_the_cluster_names_its_cause_once(
    status: int, content: Any, cause: str, stand_in: StandIn, url: str
) -> None:
    stand_in.status, stand_in.content = status, orjson.dumps(content)

    output = outage(url)

    assert f": {cause}. " in output
    assert "Exception" not in output


def test_a_cluster_that_is_away_or_too_slow_is_said_once(stand_in: StandIn, url: str) -> None:
    stand_in.pause = 2.0
    with socket.socket() as bound:  # no process listens on it
        bound.bind(("127.0.0.1", 0))
        away = outage(f"http://127.0.0.1:{bound.getsockname()[1]}")

    assert away.startswith("x: no answer within 0 s: the cluster cannot be reached (Connection refused). Run")
    assert "no answer within 0 s: the cluster did not answer in time. Run" in outage(url, deadline=0.2)


def outage(url: str, deadline: float = 5.0) -> str:
    """The error of a loader without patience."""
    client = connect_to_load(OpenSearchConfig(url=url, deadline_seconds=deadline))
    with pytest.raises(OutageError) as caught, contextlib.closing(client):
        OutageRetry(0, "x").until_answered(client, lambda: client.indices.get_mapping(index="x"))
    return str(caught.value)


def test_a_name_or_password_in_the_url_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="OPENSEARCH_PASSWORD") as caught:
        OpenSearchConfig.read("https://admin:hunter2@search:9200", None)
    assert "hunter2" not in str(caught.value)

    monkeypatch.setenv("OPENSEARCH_USERNAME", "admin")
    monkeypatch.delenv("OPENSEARCH_PASSWORD", raising=False)
    with pytest.raises(ConfigError, match="one is set and the other is not"):
        connect_to_load(OpenSearchConfig(url="http://127.0.0.1:1"))


@pytest.mark.parametrize("text", ["tei=http://gpu,url={url},model=m@1", "vllm=http://me:a,{url},model=m"])
def test_no_further_address_of_a_reranker_may_hold_a_password(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RerankServiceConfig.read(text.format(url="http://me:hunter2@gpu:8000"))

    assert "hunter2" not in str(caught.value)


def test_a_rerankers_name_may_hold_what_an_address_may_not() -> None:
    assert RerankServiceConfig.read("vllm=http://gpu:8000,model=house/m@v2").model == "house/m@v2"


def test_credentials_are_sent_to_the_cluster(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    observed: list[str] = []
    app = FastAPI()

    @app.get("/{path:path}")
    async def who(request: Request) -> dict[str, Any]:
        observed.append(request.headers.get("authorization", ""))
        return {}

    monkeypatch.setenv("OPENSEARCH_USERNAME", "reader")
    monkeypatch.setenv("OPENSEARCH_PASSWORD", "pass")
    with running(app) as url:
        with_cluster(url, lambda cluster: cluster.mappings("x"))

    assert observed == [httpx.BasicAuth("reader", "pass")._auth_header]


def test_a_knowledge_base_needs_a_file_or_a_cluster(kbs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"give its file, demo/default=PATH, or --opensearch URL"):
        open_engines(RagConfig(knowledge_bases=(KnowledgeBaseSource(tenant_id="demo"),), index_root=tmp_path))
    with pytest.raises(ConfigError, match="means nothing without --opensearch"):
        OpenSearchConfig.read("", 3.0)


def test_only_what_was_used_lately_is_kept() -> None:
    stored = LruCache[str, int](2)
    stored.put("a", 1)
    stored.put("b", 2)
    assert stored.get("a") == 1

    stored.put("c", 3)

    assert (stored.get("a"), stored.get("b"), stored.get("c")) == (1, None, 3)


def test_a_cluster_that_has_too_much_to_do_is_asked_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is available all the while, and says so."""
    from opensearchpy.exceptions import TransportError

    pauses, answers = list[float](), iter([TransportError(429, "too busy", {}), TransportError(429, "too busy", {})])
    client = Mock()
    client.cluster.health.return_value = {"indices": {}}
    monkeypatch.setattr("serving.rag.opensearch.outage_retry.time.sleep", pauses.append)

    def ask() -> str:
        if error := next(answers, None):
            raise error
        return "done"

    assert OutageRetry(60, "x").until_answered(client, ask) == "done"
    assert pauses == [1.0, 1.0]
