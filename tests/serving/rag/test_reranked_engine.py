"""The RAG service before a reranker over HTTP: who scored is said, and two scorers never meet in one answer."""

import asyncio
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request

from qinglan.errors import ConfigError
from qinglan.rag.calibration import Calibration
from qinglan.rag.contract import KNOWLEDGE_BASES_PATH, RagAnswer, RagData
from serving.rag.app import create_app
from serving.rag.config import RerankerIdentity, RerankServiceConfig
from serving.rag.engine import TantivyEngine
from serving.rag.rerank.calibration import FittedServiceReranker, read_fitted_reranker
from serving.rag.rerank.lexical_reranker import DEFAULT_RERANKER, FitReport
from serving.rag.rerank.reranker_client import RerankerClient
from serving.rag.reranked_engine import RerankedEngine
from serving.rag.server import read_scoring
from standins.reranker.app import FakeReranker
from standins.reranker.app import create_app as reranker_app
from standins.reranker.behaviour import Behaviour

pytestmark = pytest.mark.slow

Running = Callable[[Any], AbstractContextManager[str]]
Engines = dict[tuple[str, str], TantivyEngine]
Ask = Callable[..., httpx.Response]
KEY = ("fivedoctors", "default")

QUERY = "虾青素软胶囊要不要放冰箱，益生菌冻干粉呢"
CALIBRATION = Calibration(scale="probability", slope=0.5, intercept=-1.0)
REPORT = FitReport(
    tenant_id="fivedoctors", snapshot="s", labels="l", fitted_conversations=1, held_out_conversations=1,
    held_out_pairs=1, auc=None, calibration_error=None, top1_calibration_error=None,
)  # fmt: skip
PATIENT = {"kind": "vllm", "model": "overlap", "deadline_seconds": 30}
"""A machine at work may be slow; what is too late for a user is told by the deadline that a test sets."""

SERVICE = RerankerIdentity(kind="vllm", model="overlap")


class World:
    """A RAG service over a local engine and a stand-in reranker, both on sockets."""

    def __init__(self, engines: Engines, ask: Ask, running: Running) -> None:
        self.engines, self.ask, self.running = engines, ask, running
        self.stand_in = FakeReranker(Behaviour())

    def answers(
        self, *requests: dict[str, Any], calibration: Calibration | None = CALIBRATION, **settings: Any
    ) -> tuple[list[RagData], httpx.Response]:
        """The service's answer to each request, and its metrics afterwards."""
        with self.running(reranker_app(self.stand_in)) as url:
            config = RerankServiceConfig.parse({**PATIENT, "url": url, **settings}, "test")
            service = RerankerClient(config)
            engine = RerankedEngine(self.engines[KEY], service, calibration)
            with self.running(create_app({KEY: engine}, shared=[service])) as rag:
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
    ("behaviour", "deadline", "reason"),
    [
        (Behaviour(fault="broken"), 30, "refused"),
        (Behaviour(fault="missing"), 30, "malformed"),
        (Behaviour(latency=1), 0.1, "timeout"),
        (Behaviour(model="newer"), 30, "refused"),
    ],
)
def test_where_it_fails_the_answer_is_the_local_one_and_says_why(
    world: World, behaviour: Behaviour, deadline: float, reason: str, need: str | None
) -> None:
    world.stand_in.behaviour = behaviour
    requested = {"rewritten_query": QUERY, **({"need": need} if need else {})}

    [data], metrics = world.answers(requested, deadline_seconds=deadline)

    assert (data.reranker, data.reranker_fallback_reason) == ("local", reason)
    assert data.recall == world.local(**requested).recall
    counted = metrics.text
    assert f'qinglan_rag_reranker_fallbacks_total{{reason="{reason}",tenant="fivedoctors"}} 1.0' in counted
    assert re.search(r'qinglan_rag_reranker_seconds_count\{reranker="local",tenant="fivedoctors"\} 1.0', counted)


def test_where_it_fails_for_the_need_alone_the_query_is_scored_again_by_the_same_scorer(world: World) -> None:
    """Half of all requests fail, always the same ones: a query that is scored, and needs of which some are not."""
    world.stand_in.behaviour = Behaviour(fault="broken", error_rate=0.5)
    tried = [{"rewritten_query": f"{QUERY}{number}"} for number in range(9)]
    query = next(item for item in tried if world.answers(item)[0][0].reranker == "service")
    needs = [f"鱼油{number}" for number in range(9)]

    result = dict(zip(needs, world.answers(*({**query, "need": need} for need in needs))[0], strict=True))

    assert {data.reranker for data in result.values()} == {"local", "service"}
    for need, data in result.items():
        if data.reranker == "local":
            assert data.reranker_fallback_reason == "refused"
            assert data.recall == world.local(**query, need=need).recall


def test_without_a_calibration_its_own_probabilities_are_served(world: World) -> None:
    requested = {"rewritten_query": QUERY}
    raw, mapped = (world.answers(requested, calibration=item)[0][0] for item in (None, CALIBRATION))

    assert (raw.reranker, mapped.reranker) == ("service", "service")
    assert ids(raw) == ids(mapped)
    expected = [round(CALIBRATION.probability(hit.reranker_score), 4) for hit in raw.recall]
    assert [round(hit.reranker_score, 4) for hit in mapped.recall] == pytest.approx(expected, abs=2e-3)


def test_unfitted_logits_are_not_reported_as_probabilities(engines: Engines, running: Running, ask: Ask) -> None:
    logits = FastAPI()

    @logits.post("/v1/rerank")
    async def rerank(request: Request) -> dict[str, Any]:
        documents = (await request.json())["documents"]
        return {"results": [{"index": at, "relevance_score": 3.5 - at} for at in range(len(documents))]}

    def answer(url: str, calibration: Calibration | None) -> RagData:
        service = RerankerClient(RerankServiceConfig.parse({**PATIENT, "url": url}, "test"))
        with running(create_app({KEY: RerankedEngine(engines[KEY], service, calibration)}, shared=[service])) as rag:
            return RagAnswer.model_validate_json(ask(rag, rewritten_query=QUERY).content).data

    with running(logits) as url:
        unfitted = answer(url, None)
        wrong = answer(url, CALIBRATION)
        fitted = answer(url, Calibration(scale="logit", slope=1.0, intercept=0.0))

    assert (unfitted.reranker, unfitted.reranker_fallback_reason) == ("local", "uncalibrated")
    assert (wrong.reranker, wrong.reranker_fallback_reason) == ("local", "malformed")
    assert fitted.reranker == "service"
    assert fitted.recall[0].reranker_score == pytest.approx(0.970688)


def test_a_cache_can_tell_scorers_apart_and_an_operator_who_is_not_calibrated(
    engines: Engines, running: Running
) -> None:
    def served(calibration: Calibration | None, **changes: Any) -> tuple[str, list[str]]:
        config = RerankServiceConfig.parse({"kind": "vllm", "url": "http://gpu", "model": "m", **changes}, "test")
        service = RerankerClient(config)
        engine = RerankedEngine(engines[KEY], service, calibration)
        with running(create_app({KEY: engine}, shared=[service])) as rag:
            listed = httpx.get(rag + KNOWLEDGE_BASES_PATH, trust_env=False).json()["knowledge_bases"]
            health = httpx.get(f"{rag}/healthz", trust_env=False).json()
        return listed[0]["reranker"], health["uncalibrated_tenants"]

    usual, uncalibrated = served(CALIBRATION)
    moved, _ = served(CALIBRATION, url="http://other", deadline_seconds=9)
    rest = [
        served(None),
        served(CALIBRATION, model="n"),
        served(CALIBRATION, kind="tei"),
        served(CALIBRATION, template="qwen3"),
    ]

    assert moved == usual
    assert len({usual, engines[KEY].knowledge_base.reranker, *(digest for digest, _ in rest)}) == 6
    assert uncalibrated == ["fivedoctors"]  # the local score that stands in for it was fitted to nobody
    assert served(None)[1] == ["fivedoctors"]


def test_a_tenants_file_says_by_its_content_what_it_calibrates(tmp_path: Path) -> None:
    local, of_service = tmp_path / "local.json", tmp_path / "service.json"
    fitted = FittedServiceReranker(
        service=SERVICE, calibration=CALIBRATION, report=REPORT, raw=None, local=DEFAULT_RERANKER
    )
    local.write_text(DEFAULT_RERANKER.model_dump_json())
    of_service.write_text(fitted.model_dump_json())

    assert read_fitted_reranker(local) == DEFAULT_RERANKER
    assert read_fitted_reranker(of_service) == fitted
    assert read_scoring(None, SERVICE) == (DEFAULT_RERANKER, None)
    assert read_scoring(local, SERVICE) == (DEFAULT_RERANKER, None)
    assert read_scoring(of_service, SERVICE) == (DEFAULT_RERANKER, CALIBRATION)
    with pytest.raises(ConfigError, match=r"service\.json: calibrates the scores of a service"):
        read_scoring(of_service, None)
    with pytest.raises(ConfigError, match=r"calibrates vllm overlap .*but --reranker-service is tei overlap"):
        read_scoring(of_service, RerankerIdentity(kind="tei", model="overlap"))


@pytest.mark.parametrize("content", [b"", b"[]", b"7", b'{"service": {}}', b'{"service": 1, "bias": 2}'])
def test_a_file_that_is_neither_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "reranker.json").write_bytes(content)

    with pytest.raises(ConfigError, match=r"reranker\.json: no reranker"):
        read_fitted_reranker(tmp_path / "reranker.json")
