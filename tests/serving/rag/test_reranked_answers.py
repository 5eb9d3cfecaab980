"""The RAG service with a reranker over HTTP: an answer names its scorer, and never mixes the scores of two."""

import asyncio
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request

from qinglan.rag.contract import KNOWLEDGE_BASES_PATH, RagAnswer, RagData
from serving.rag.app import create_app
from serving.rag.config import RerankServiceConfig
from serving.rag.engine import TantivyEngine
from serving.rag.reranker_client import RerankerClient
from tests.servers.rerankers import FakeReranker

pytestmark = pytest.mark.slow

Running = Callable[[Any], AbstractContextManager[str]]
Engines = dict[tuple[str, str], TantivyEngine]
Ask = Callable[..., httpx.Response]
KEY = ("fivedoctors", "default")

QUERY = "虾青素软胶囊要不要放冰箱，益生菌冻干粉呢"
PATIENT = {"kind": "vllm", "model": "overlap", "deadline_seconds": 30}
"""Settings for a busy machine; a test of the deadline replaces it."""


class World:
    """A RAG service over a local engine and a stand-in reranker, both on sockets."""

    def __init__(self, engines: Engines, ask: Ask, running: Running) -> None:
        self.engines, self.ask, self.running = engines, ask, running
        self.stand_in = FakeReranker()

    def answers(self, *requests: dict[str, Any], **settings: Any) -> tuple[list[RagData], httpx.Response]:
        """The service's answer to each request, and its metrics afterwards."""
        with self.running(self.stand_in.app) as url:
            config = RerankServiceConfig.parse({**PATIENT, "url": url, **settings}, "test")
            service = RerankerClient(config)
            with self.running(create_app({KEY: self.engines[KEY]}, reranker=service)) as rag:
                result = [
                    RagAnswer.model_validate_json(self.ask(rag, **request).content).data for request in requests
                ]
                return result, httpx.get(f"{rag}/metrics", trust_env=False)

    def local(self, **request: Any) -> RagData:
        """The same without a reranker."""
        with self.running(create_app(self.engines)) as rag:
            return RagAnswer.model_validate_json(self.ask(rag, **request).content).data


@pytest.fixture
def world(engines: Engines, ask: Ask, running: Running) -> World:
    return World(engines, ask, running)


def ids(data: RagData) -> list[str]:
    return [hit.id for hit in data.recall]


def test_a_service_that_answers_scores_and_orders_and_the_answer_says_so(world: World) -> None:
    [data], _ = world.answers({"rewritten_query": QUERY, "top_k": 20})
    scores = [hit.reranker_score for hit in data.recall]

    assert (data.reranker, data.reranker_fallback_reason) == ("service", "")
    assert scores == sorted(scores, reverse=True)
    local = world.local(rewritten_query=QUERY, top_k=20)
    assert sorted(ids(data)) == sorted(ids(local))
    assert ids(data) != ids(local)
    assert world.stand_in.documents == [20]


def test_passages_that_score_the_same_stay_in_the_engines_order(world: World) -> None:
    query = "退换货政策"

    [data], _ = world.answers({"rewritten_query": query, "top_k": 20})

    engine = [candidate.passage.id for candidate in asyncio.run(world.engines[KEY].search(query, 20))]
    by_score: dict[float, list[int]] = {}
    for hit in data.recall:
        by_score.setdefault(hit.reranker_score, []).append(engine.index(hit.id))
    assert max(map(len, by_score.values())) > 1
    assert all(ranks == sorted(ranks) for ranks in by_score.values())


@pytest.mark.parametrize("need", [None, "鱼油软胶囊要不要放冰箱"])
@pytest.mark.parametrize(
    ("server", "deadline", "reason"),
    [
        (FakeReranker(fault="broken"), 30, "refused"),
        (FakeReranker(fault="missing"), 30, "malformed"),
        (FakeReranker(latency=1), 0.1, "timeout"),
    ],
)
def test_where_it_fails_the_answer_is_the_local_one_and_says_why(
    world: World, server: FakeReranker, deadline: float, reason: str, need: str | None
) -> None:
    world.stand_in = server
    requested = {"rewritten_query": QUERY, **({"need": need} if need else {})}

    [data], metrics = world.answers(requested, deadline_seconds=deadline)

    assert (data.reranker, data.reranker_fallback_reason) == ("local", reason)
    assert data.recall == world.local(**requested).recall
    counted = metrics.text
    assert f'qinglan_rag_reranker_fallbacks_total{{reason="{reason}",tenant="fivedoctors"}} 1.0' in counted
    assert re.search(r'qinglan_rag_reranker_seconds_count\{reranker="local",tenant="fivedoctors"\} 1.0', counted)


def test_where_it_fails_for_the_need_alone_the_query_is_scored_again_by_the_same_scorer(world: World) -> None:
    world.stand_in.fault, world.stand_in.faulty_text = "broken", "鱼油"
    requested = {"rewritten_query": QUERY, "need": "鱼油软胶囊要不要放冰箱"}

    [data], _ = world.answers(requested)

    assert len(world.stand_in.documents) == 2
    assert (data.reranker, data.reranker_fallback_reason) == ("local", "refused")
    assert data.recall == world.local(**requested).recall


def test_logits_are_not_served_as_probabilities(engines: Engines, running: Running, ask: Ask) -> None:
    logits = FastAPI()

    @logits.post("/v1/rerank")
    async def rerank(request: Request) -> dict[str, Any]:
        documents = (await request.json())["documents"]
        return {"results": [{"index": at, "relevance_score": 3.5 - at} for at in range(len(documents))]}

    with running(logits) as url:
        service = RerankerClient(RerankServiceConfig.parse({**PATIENT, "url": url}, "test"))
        with running(create_app({KEY: engines[KEY]}, reranker=service)) as rag:
            data = RagAnswer.model_validate_json(ask(rag, rewritten_query=QUERY).content).data

    assert (data.reranker, data.reranker_fallback_reason) == ("local", "uncalibrated")


def test_a_cache_can_tell_scorers_apart_and_an_operator_who_is_not_calibrated(
    engines: Engines, running: Running
) -> None:
    def served(**changes: Any) -> tuple[str, list[str]]:
        config = RerankServiceConfig.parse({"kind": "vllm", "url": "http://gpu", "model": "m", **changes}, "test")
        with running(create_app({KEY: engines[KEY]}, reranker=RerankerClient(config))) as rag:
            listed = httpx.get(rag + KNOWLEDGE_BASES_PATH, trust_env=False).json()["knowledge_bases"]
            health = httpx.get(f"{rag}/healthz", trust_env=False).json()
        return listed[0]["reranker"], health["uncalibrated_tenants"]

    usual, uncalibrated = served()
    moved, _ = served(url="http://other", deadline_seconds=9)
    digests = [served(model="n")[0], served(kind="tei")[0]]

    assert moved == usual
    assert len({usual, engines[KEY].knowledge_base.reranker, *digests}) == 4
    assert uncalibrated == ["fivedoctors"]
