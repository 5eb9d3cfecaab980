"""A rewriter that hangs, recovers, or changes its version under questions; real servers on loopback on both sides."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

import httpx
import orjson
import pytest

from qinglan.rag.contract import RAG_PATH
from serving.rag import patience, rewriter_client
from serving.rag.app import create_app
from serving.rag.config import RewriterConfig
from serving.rag.engine import TantivyEngine
from serving.rag.rewriter_client import FAILURES, RewriterClient

Running = Callable[[Any], AbstractContextManager[str]]
Engines = dict[tuple[str, str], TantivyEngine]
HEAD = "HTTP/1.1 {} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n"
PER_SECOND = 100


class Rewriter:
    """A rewriter on a socket: it takes every question, and answers while it does not hang."""

    def __init__(self, hangs: bool = False) -> None:
        self.hangs, self.status, self.versions, self.received = hangs, 200, ["v1"], 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        async with await asyncio.start_server(self._converse, "127.0.0.1", 0) as server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                self.received += 1
                if self.hangs:
                    await reader.read()  # until the other side goes
                    break
                version = self.versions[self.received % len(self.versions)]
                body = orjson.dumps(
                    {"predictions": [{"rewritten_query": "虾青素软胶囊 每日服用频次", "model_version": version}]}
                )
                writer.write(HEAD.format(self.status, len(body)).encode() + body)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the other side went, or the test is over
        finally:
            writer.close()


class Rag:
    """The service before that rewriter."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ask(self, query: str = "那它一天吃几次") -> dict[str, Any]:
        body = {"query": query, "tenant_id": "fivedoctors", "score_threshold": 0.0}
        answer = await self._http.post(RAG_PATH, json=body)
        assert answer.status_code == 200, answer.text
        data: dict[str, Any] = answer.json()["data"]
        return data

    async def open_loop(self, questions: int, query: str = "问{}") -> Counter[str]:
        """Ask at a steady rate, whoever is still waiting; the reasons of the answers, empty for a rewrite."""
        waiting = []
        for number in range(questions):
            waiting.append(asyncio.create_task(self.ask(query.format(number))))
            await asyncio.sleep(1 / PER_SECOND)
        return Counter(data["fallback_reason"] for data in await asyncio.gather(*waiting))

    async def metric(self, name: str) -> float:
        page = (await self._http.get("/metrics")).text
        return next((float(line.split()[-1]) for line in page.splitlines() if line.startswith(name)), 0.0)


@pytest.fixture(autouse=True)
def _no_shorter_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep each wait at the deadline of its test: a busy machine can stall for longer than the usual second."""
    monkeypatch.setattr(patience, "LEAST_SECONDS", 60.0)


@asynccontextmanager
async def rag_before(rewriter: Rewriter, engines: Engines, running: Running, **settings: Any) -> AsyncIterator[Rag]:
    async with rewriter.listening() as url:
        client = RewriterClient(RewriterConfig.model_validate({"url": url, "deadline_seconds": 0.3, **settings}))
        with running(create_app(engines, client)) as rag:
            async with httpx.AsyncClient(base_url=rag, timeout=120, trust_env=False) as http:
                yield Rag(http)


@pytest.mark.slow
def test_after_a_few_questions_that_waited_in_vain_the_others_are_searched_at_once(
    engines: Engines, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriter_client, "PROBE_SECONDS", 1000.0)
    rewriter = Rewriter(hangs=True)

    async def scene() -> None:
        async with rag_before(rewriter, engines, running) as rag:
            assert await asyncio.gather(*(rag.ask() for _ in range(FAILURES)))
            assert await rag.metric("qinglan_rag_rewriter_circuit_open") == 1
            assert await rag.open_loop(100) == {"circuit_open": 100}
            assert (await rag.ask())["recall"]
            assert await rag.metric('qinglan_rag_fallbacks_total{reason="timeout"') == FAILURES
            assert await rag.metric('qinglan_rag_fallbacks_total{reason="circuit_open"') == 101

    asyncio.run(scene())
    assert rewriter.received == FAILURES


@pytest.mark.slow
def test_once_it_answers_again_questions_are_rewritten_again(
    engines: Engines, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriter_client, "PROBE_SECONDS", 0.2)
    rewriter = Rewriter(hangs=True)

    async def scene() -> None:
        async with rag_before(rewriter, engines, running, deadline_seconds=5.0) as rag:
            await asyncio.gather(*(rag.ask() for _ in range(FAILURES)))
            assert await rag.metric("qinglan_rag_rewriter_circuit_open") == 1
            rewriter.hangs = False
            async with asyncio.timeout(60):
                while (await rag.ask())["rewriter"] != "model":  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert await rag.open_loop(50) == {"": 50}
            assert await rag.metric("qinglan_rag_rewriter_circuit_open") == 0

    asyncio.run(scene())


def test_a_rewriter_that_refuses_keeps_nobody_waiting_and_is_asked_on(engines: Engines, running: Running) -> None:
    """A question that is refused for its own sake must not take the rewriter from everybody else."""
    rewriter = Rewriter()
    rewriter.status = 400

    async def scene() -> None:
        async with rag_before(rewriter, engines, running, deadline_seconds=60) as rag:
            assert await rag.open_loop(3 * FAILURES) == {"refused": 3 * FAILURES}

    asyncio.run(scene())
    assert rewriter.received == 3 * FAILURES


@pytest.mark.slow
def test_a_known_question_keeps_its_rewrite_while_the_rewriter_hangs(engines: Engines, running: Running) -> None:
    rewriter = Rewriter()

    async def scene() -> None:
        async with rag_before(rewriter, engines, running, deadline_seconds=5.0) as rag:
            first = await rag.ask()
            rewriter.hangs = True
            assert await rag.open_loop(100, "那它一天吃几次") == {"": 100}
            again = await rag.ask()
            assert (again["rewriter"], again["rewriter_version"]) == ("model", "v1")
            assert (again["rewritten_query"], again["recall"]) == (first["rewritten_query"], first["recall"])
            assert (await rag.ask("问"))["fallback_reason"] == "timeout"

    asyncio.run(scene())


def test_answers_from_memory_count_for_no_version(engines: Engines, running: Running) -> None:
    rewriter = Rewriter()

    async def scene() -> None:
        async with rag_before(rewriter, engines, running, deadline_seconds=60) as rag:
            for _ in range(10):
                await rag.ask()
            assert await rag.metric('qinglan_rag_rewrite_cache_total{outcome="hit"') == 9
            assert await rag.metric('qinglan_rag_rewrite_cache_total{outcome="miss"') == 1
            assert await rag.metric('qinglan_rag_requests_total{rewriter="v1"') == 1
            assert await rag.metric('qinglan_rag_requests_total{rewriter="cache"') == 9

    asyncio.run(scene())
    assert rewriter.received == 1


@pytest.mark.slow
def test_during_a_rollout_every_question_reaches_the_models(engines: Engines, running: Running) -> None:
    """So each version's share of requests, and of answers without a passage, is that of the traffic split."""
    rewriter = Rewriter()
    rewriter.versions = ["stable"] * 9 + ["canary"]

    async def scene() -> None:
        async with rag_before(rewriter, engines, running, deadline_seconds=60) as rag:
            await rag.open_loop(20)  # the service meets the canary
            rewriter.received = 0
            versions = Counter([(await rag.ask())["rewriter_version"] for _ in range(50)])
            assert versions == {"stable": 45, "canary": 5}
            assert await rag.metric('qinglan_rag_rewrite_cache_total{outcome="off"') >= 50

    asyncio.run(scene())
    assert rewriter.received == 50


@pytest.mark.parametrize(("name", "received"), [("v1", 5), ("rewriter", 1)])
def test_a_version_that_is_only_the_name_asked_for_is_not_remembered(
    engines: Engines, running: Running, name: str, received: int
) -> None:
    """A vLLM answers with the name that it serves a model under, whatever model that is today."""
    rewriter = Rewriter()

    async def scene() -> None:
        async with rag_before(rewriter, engines, running, model=name, deadline_seconds=60) as rag:
            for _ in range(5):
                await rag.ask()

    asyncio.run(scene())
    assert rewriter.received == received
