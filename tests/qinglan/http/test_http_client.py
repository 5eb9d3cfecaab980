"""One factory makes every HTTP client: no proxy of the environment, and no more of an answer than its limits."""

import asyncio
import contextlib
import gzip
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, NamedTuple, cast

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from commands.audit.live_service import fetch_server_versions
from commands.doctor.providers import list_check
from commands.run.run import _gateway_report
from components.evaluation.rewriter.student_timing import time_served
from components.training.ppo.gateway_usage import GatewayUsage
from pipelines.checks.preflight import check_served
from qinglan.errors import OutageError, QinglanError
from qinglan.http.http_client import MAX_ANSWER_BYTES, async_client, get_json, sync_client
from qinglan.lineage.steps.step_inputs import read_gateway_state
from qinglan.live.outlets import gateway_sender
from qinglan.live.snapshot import TrainingSnapshot
from qinglan.live.trackers import check_forwarded
from qinglan.llm.budget import Budget
from qinglan.llm.config import PaidModel, RagUpstream
from qinglan.llm.providers.upstream import TransientError, Upstream
from qinglan.prompts import Question
from qinglan.rag.client import RagClient
from qinglan.rag.contract import RagRequest
from qinglan.reward import style_client
from qinglan.reward.config import StyleRewardConfig
from qinglan.reward.style_client import StyleClient
from serving.gateway.cache import RetrievalCache
from serving.gateway.metrics import Metrics
from serving.gateway.retrieval_client import RetrievalClient
from serving.rag.service_client import ServiceClient, ServiceError
from serving.rollout.cluster import prometheus
from serving.rollout.cluster.prometheus import PrometheusClient
from serving.rollout.shadow.canary_client import CanaryClient
from serving.rollout.shadow.config import ModelPair
from serving.rollout.shadow.metrics import PairFailure
from serving.rollout.shadow.payload_log import LoggedQuestion
from standins.rollout_local.evidence import scrape_counters
from tests.servers.echo_servers import PRICE, Reply, Scripted, running
from tests.servers.slow_servers import ENDS_AFTER, FAST, SLOW, answering

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
SECONDS = 0.5
"""The time limit of a client in these tests."""


class Client(NamedTuple):
    """A client that reads an answer of another service, and its error where the answer cannot be read."""

    ask: Callable[[str], Any]
    failure: type[Exception]


def waits(ask: Callable[[str], Awaitable[Any]]) -> Callable[[str], Any]:
    async def run(url: str) -> Any:
        return await ask(url)

    return lambda url: asyncio.run(run(url))


async def ask_model(url: str) -> Any:
    model = PaidModel.parse({"base_url": f"{url}/v1", "model": "echo", "price": PRICE}, "test")
    upstream = Upstream(model, "teacher", SECONDS)
    try:
        return await upstream.complete({"model": "echo", "messages": [{"role": "user", "content": "问"}]})
    finally:
        await upstream.aclose()


async def ask_rag(url: str) -> Any:
    async with RagClient(url, timeout=SECONDS, attempts=1) as rag:
        return await rag.retrieve(RagRequest(query="问", tenant_id="t"))


async def ask_rag_of_gateway(url: str) -> Any:
    upstream = RagUpstream(base_url=url, timeout_seconds=SECONDS, attempts=1)
    client = RetrievalClient(upstream, cast(RetrievalCache, None), Metrics(Budget(1.0, 0.0)))
    try:
        return await client.retrieve(b'{"query": "q", "tenant_id": "t"}')  # without a rewrite, nothing is cached
    finally:
        await client.aclose()


async def ask_service(url: str) -> Any:
    """The client under reranker, deployed rewriter and content check."""
    service = ServiceClient(url, SECONDS)
    try:
        return await service.post("/rerank", {})
    finally:
        await service.aclose()


async def ask_style(url: str) -> Any:
    client = StyleClient(StyleRewardConfig(url=url, weight=0.1, wanted=("诚实",)))
    try:
        return await client.probability("问", "答")
    finally:
        await client.aclose()


async def ask_canary(url: str) -> Any:
    client = CanaryClient("rewriter", "", SECONDS)
    question = LoggedQuestion(request_id="1", version="b" * 12, outcome="model", tenant="t", question="问")
    try:
        return await client.rewrite(question, ModelPair(canary="a" * 12, stable="b" * 12, url=url))
    finally:
        await client.aclose()


def ask_prometheus(url: str) -> Any:
    with contextlib.closing(PrometheusClient(url)) as client:
        return client.now()


CLIENTS = {
    "paid model": Client(waits(ask_model), TransientError),
    "RAG service": Client(waits(ask_rag), OutageError),
    "RAG service behind the gateway": Client(waits(ask_rag_of_gateway), OutageError),
    "style service": Client(waits(ask_style), OutageError),
    "reranker and rewriter": Client(waits(ask_service), ServiceError),
    "canary": Client(waits(ask_canary), PairFailure),
    "Prometheus": Client(ask_prometheus, OutageError),
    "JSON of the gateway": Client(lambda url: get_json(url, "Is it up?", SECONDS), OutageError),
}


class Hostile:
    """An ASGI app that answers every request with the same endless, huge or packed body, and counts what it sent."""

    def __init__(self, body: Callable[[], Iterator[bytes]], pause: float, headers: dict[str, str]) -> None:
        self._body, self._pause, self._headers = body, pause, headers
        self.sent = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        await request.body()

        async def stream() -> AsyncIterator[bytes]:
            for chunk in self._body():
                self.sent += len(chunk)
                yield chunk
                await asyncio.sleep(self._pause)

        await StreamingResponse(stream(), headers=self._headers)(scope, receive, send)


def megabytes(count: int, packed: bool = False) -> Callable[[], Iterator[bytes]]:
    """A body of spaces, which JSON allows before its first sign; packed by gzip a thousand times."""
    if not packed:
        return lambda: iter([b" " * 1_000_000] * count)
    body = gzip.compress(b" " * count * 1_000_000)
    return lambda: iter([body])


GZIP = {"content-encoding": "gzip"}
ANSWERS = {
    "an endless answer": (lambda: iter(lambda: b" " * 1_000_000, b""), 0.0, {}),
    "an answer that says it is small and is packed": (megabytes(100, packed=True), 0.0, GZIP),
    "an answer that is packed twice": (
        lambda: iter([gzip.compress(gzip.compress(b" " * 100_000_000))]), 0.0, {"content-encoding": "gzip, gzip"},
    ),
    "an answer that is packed by deflate": (
        lambda: iter([zlib.compress(b" " * 100_000_000)]), 0.0, {"content-encoding": "deflate"},
    ),
    "an answer that is not packed as it says": (lambda: iter([b"{}"]), 0.0, GZIP),
    "an answer of one byte now and then": (lambda: iter(lambda: b" ", b""), 0.1, {}),
    "an answer that ends too early": (lambda: iter([b"{"]), 0.0, {"content-length": "5000"}),
}  # fmt: skip
"""Bodies, with the seconds between their pieces and their headers."""


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(style_client, "SECONDS", SECONDS)
    monkeypatch.setattr(style_client, "ATTEMPTS", 1)
    monkeypatch.setattr(prometheus, "ANSWER_SECONDS", SECONDS)
    monkeypatch.setenv("QINGLAN_SHADOW_TOKEN", "0" * 64)


def passed_on(answer: str, client: str) -> bool:
    """True for what the gateway hands on as it came, small as it is: it unpacks no answer of a RAG service."""
    return client == "RAG service behind the gateway" and "packed" in answer


ROWS = [(answer, client) for answer in ANSWERS for client in CLIENTS if not passed_on(answer, client)]


@pytest.mark.parametrize(("answer", "client"), ROWS)
def test_a_hostile_answer_is_an_outage_within_the_limits_of_size_and_time(answer: str, client: str) -> None:
    app = Hostile(*ANSWERS[answer])
    started = time.monotonic()

    with running(app) as url, pytest.raises(CLIENTS[client].failure):
        CLIENTS[client].ask(url)

    assert app.sent < 4 * prometheus.MAX_ANSWER_BYTES  # the rest waits in buffers of the connection
    assert time.monotonic() - started < 30


TWO_CLIENTS = ("RAG service", "JSON of the gateway")
"""One with coroutines and one without."""

UNCOUNTED_ROWS = [(answer, client) for answer in (*SLOW, *FAST) for client in TWO_CLIENTS]
UNCOUNTED_ROWS += [("a header", client) for client in CLIENTS if client not in TWO_CLIENTS]


@pytest.mark.parametrize(("answer", "client"), UNCOUNTED_ROWS)
def test_an_answer_whose_pieces_are_no_body_is_an_outage_at_the_same_limit_of_time(answer: str, client: str) -> None:
    """Each byte of a head began httpcore's read timeout anew, and no piece of a body came that could be counted."""
    with answering(answer) as url, pytest.raises(CLIENTS[client].failure):
        started = time.monotonic()
        try:
            CLIENTS[client].ask(url)
        finally:
            assert time.monotonic() - started < ENDS_AFTER / 2


def test_the_next_answer_on_a_connection_has_the_whole_time_again() -> None:
    with running(Scripted(Reply(200, b"{}"))) as url, sync_client(url, timeout=SECONDS) as http:
        assert http.get("/").status_code == 200
        time.sleep(2 * SECONDS)
        assert http.get("/").status_code == 200


@pytest.mark.parametrize("timeout", [httpx2.Timeout(None, connect=5.0), None], ids=["only connecting", "none"])
def test_an_answer_without_a_limit_of_time_may_take_any(timeout: Any) -> None:
    app = Hostile(lambda: iter([b" "] * 10), SECONDS / 5, {})

    async def ask(url: str) -> bytes:
        async with async_client(timeout=timeout) as http:
            return (await http.get(url)).content

    with running(app) as url, sync_client(timeout=timeout) as http:
        assert asyncio.run(ask(url)) == http.get(url).content == b" " * 10


def test_a_file_may_take_longer_than_its_head() -> None:
    app = Hostile(lambda: iter([b" "] * 10), SECONDS / 5, {})

    async def ask(url: str) -> bytes:
        async with async_client(timeout=SECONDS, whole_seconds=60) as http:
            return (await http.get(url)).content

    with running(app) as url:
        assert asyncio.run(ask(url)) == b" " * 10


def send_snapshot(url: str) -> None:
    gateway_sender(url)(cast(Any, TrainingSnapshot).model_construct(), [])


def list_models(url: str) -> None:
    list_check("teacher", PaidModel.parse({"base_url": f"{url}/v1", "model": "echo", "price": PRICE}, "test"))


CALLS = {name: client.ask for name, client in CLIENTS.items()} | {
    "report of a run": _gateway_report,
    "knowledge bases before a run": lambda url: check_served(url, {"t"}, "default"),
    "MLflow behind the gateway": check_forwarded,
    "live view": send_snapshot,
    "usage of the reward": GatewayUsage,
    "state of the gateway": read_gateway_state,
    "versions of a live service": lambda url: fetch_server_versions({"status": {"url": url}}),
    "timing of a served rewriter": lambda url: time_served(url, [Question("t", "问", "", "")]),
    "models of doctor": list_models,
    "counters of the local rollout": scrape_counters,
}


@pytest.mark.parametrize("call", CALLS)
def test_no_call_takes_the_proxy_of_the_environment(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.setenv(name, "socks5://127.0.0.1:9" if "ALL" in name.upper() else "http://127.0.0.1:9")
    app = Scripted(Reply(200, b"{}"))

    with (
        running(app) as url,
        contextlib.suppress(QinglanError, TransientError, ServiceError, PairFailure, LookupError),
    ):
        CALLS[call](url)

    assert app.requests


LARGE = b'{"a": "' + b"x" * MAX_ANSWER_BYTES + b'"}'


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (LARGE, {}),
        (gzip.compress(LARGE), {"content-encoding": "gzip"}),
        (gzip.compress(gzip.compress(LARGE)), {"content-encoding": "gzip, gzip"}),
        (zlib.compress(LARGE), {"content-encoding": "deflate"}),
    ],
)
def test_an_answer_that_could_be_read_is_refused_for_its_size(body: bytes, headers: dict[str, str]) -> None:
    async def ask(url: str) -> None:
        async with async_client(timeout=30) as http:
            with pytest.raises(httpx2.TransportError, match="larger than 8,000,000 bytes"):
                await http.get(url)

    with running(Scripted(Reply(200, body, headers))) as url:
        asyncio.run(ask(url))
        with pytest.raises(OutageError, match="larger than 8,000,000 bytes"):
            get_json(url, "Is it up?")


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(200, b"<html>"), "not JSON. Is it up?"),
        (Reply(503, b"{}"), "status 503. Is it up?"),
        (Reply(302, b"", {"location": "/elsewhere"}), "status 302. Is it up?"),
    ],
)
def test_json_that_is_none_is_an_outage_with_its_cause(reply: Reply, message: str) -> None:
    with running(Scripted(reply)) as url, pytest.raises(OutageError, match=message) as caught:
        get_json(url, "Is it up?")

    assert caught.value.__cause__ is not None
