"""Shadow pairs, end to end: real rewriters, a real RAG service, questions from a payload log."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families as parsed
from starlette.requests import Request
from starlette.responses import Response

from qinglan.processes.services import free_port
from qinglan.store import open_store
from serving.rollout.check_counts import Counters, counts_by_check, make_series
from serving.rollout.sequential import Count
from serving.rollout.shadow.comparer import create_comparer
from serving.rollout.shadow.config import ModelPair, ShadowConfig
from serving.rollout.shadow.metrics import Metrics
from serving.rollout.shadow.payload_log import PayloadLogReader
from serving.rollout.shadow.worker import ShadowWorker
from serving.rollout.spec import Check
from tests.models.tiny_rewriter import TAUGHT
from tests.servers.echo_servers import completion, gateway, gateway_config, running
from tests.serving.model_servers import V1
from tests.serving.rollout.shadow.conftest import TOKEN, Server, World
from tests.serving.rollout.shadow.ingress import ingress

pytestmark = pytest.mark.slow
QUERIES = [item for item in TAUGHT if "虾青素" in item] * 2
"""Questions that name a product: without one, no passage answers better than another."""

QUALITY = (Check(name="quality", margin=0.1),)


def counters(text: str) -> Counters:
    """As whoever scrapes it reads them."""
    samples = [sample for family in parsed(text) for sample in family.samples]
    return {make_series(sample.name, sample.labels): sample.value for sample in samples}


class Rollout:
    """Stands for the API server: the two models that a rollout compares, once it has a canary."""

    def __init__(self, pair: ModelPair) -> None:
        self.pair, self.has_canary = pair, True

    def current_pair(self) -> ModelPair | None:
        return self.pair if self.has_canary else None


class Eyes:
    """A shadow that polls when the test says so, and its counts."""

    def __init__(self, world: World, stable: Server, pair: ModelPair, **more: Any) -> None:
        self.pair, self.metrics, self.rollout = pair, Metrics(), Rollout(pair)
        values = {
            "payloads": str(stable.log), "rag": world.rag, "share": 1.0, "retrieval": {"score_threshold": 0.0},
            "service": "rewriter",
        }  # fmt: skip
        self.config = ShadowConfig.model_validate(values | more)
        self.reader = PayloadLogReader(open_store(self.config.payloads))

    def poll(self) -> None:
        async def once() -> None:
            rollout: Any = self.rollout
            shadow = ShadowWorker(self.config, self.reader, rollout, create_comparer(self.config), self.metrics)
            try:
                with shadow.count_failures():
                    await shadow.poll()
            finally:
                await shadow.aclose()

        asyncio.run(once())

    @property
    def pairs(self) -> dict[str, float]:
        return {
            item.label("outcome"): value for item, value in self.all() if item.name == "qinglan_shadow_pairs_total"
        }

    @property
    def failures(self) -> dict[str, float]:
        name = "qinglan_shadow_failures_total"
        return {item.label("reason"): value for item, value in self.all() if item.name == name and value}

    def all(self) -> Any:
        return counters(generate_latest(self.metrics.registry).decode()).items()


def observed(world: World, stable: Server, canary: Server, pair: ModelPair | None = None, **more: Any) -> Eyes:
    """After users have asked the stable model four questions."""
    eyes = Eyes(world, stable, pair or world.pair(stable, canary), **more)
    eyes.poll()
    stable.ask(*QUERIES)
    eyes.poll()
    return eyes


def test_a_spoiled_canary_loses_and_a_good_one_wins(world: World) -> None:
    losing, winning = observed(world, world.good, world.bad), observed(world, world.bad, world.good)

    assert losing.pairs == {"won": 0, "lost": 4, "tied": 0}
    assert winning.pairs == {"won": 4, "lost": 0, "tied": 0}
    assert observed(world, world.good, world.good).pairs == {"won": 0, "lost": 0, "tied": 4}, "both write the same"
    assert losing.failures == winning.failures == {}
    growth = dict(losing.all())
    assert counts_by_check(growth, world.bad.version, world.good.version, QUALITY)["quality"] == Count(4, 4)
    assert counts_by_check(growth, world.good.version, world.bad.version, QUALITY)["quality"] == Count(0, 0)


def test_shadow_questions_to_the_canary_are_no_evidence_of_users_and_no_payload(world: World) -> None:
    counts = ("questions_total", "seconds_count", "tokens_total", "written_tokens_count")
    names = [f"qinglan_rewriter_{count}" for count in counts]
    before, stored = [world.bad.counted(name) for name in names], world.bad.stored
    observed(world, world.good, world.bad)

    assert [world.bad.counted(name) for name in names] == before
    shadowed = f'qinglan_rewriter_requests_total{{outcome="shadow",protocol="v1",version="{world.bad.version}"}}'
    assert world.bad.counted(shadowed) >= 4
    assert world.bad.stored == stored


def test_a_question_is_counted_once_by_one_process_and_by_the_next_not_at_all(world: World) -> None:
    first = observed(world, world.good, world.bad)
    first.poll()
    second = Eyes(world, world.good, first.pair)
    for _ in range(2):
        second.poll()

    assert (sum(first.pairs.values()), sum(second.pairs.values())) == (4, 0)


def test_an_outage_of_the_rag_counts_no_pair(world: World) -> None:
    eyes = observed(world, world.good, world.bad, rag=f"http://127.0.0.1:{free_port()}")

    assert sum(eyes.pairs.values()) == 0 and eyes.failures == {"rag": 4}


def test_a_canary_that_is_gone_or_is_not_the_one_counts_no_pair(world: World) -> None:
    gone = world.pair(world.good, world.bad, url=f"http://127.0.0.1:{free_port()}")
    other = world.pair(world.good, world.bad, url=world.good.url)
    both = [Eyes(world, world.good, item) for item in (gone, other)]
    for item in both:
        item.poll()
    world.good.ask(*QUERIES)
    for item in both:
        item.poll()

    assert both[0].failures == {"canary_unreachable": 4}
    assert both[1].failures == {"other_version": 4}, "the stable model has answered for the canary"
    assert sum(sum(item.pairs.values()) for item in both) == 0


def test_by_an_ingress_gateway_the_canary_is_asked_by_its_own_host_which_resolves_nowhere(world: World) -> None:
    tag, users = "latest-rewriter-predictor.qinglan.example.com", "rewriter-predictor.qinglan.example.com"
    with ingress() as door:
        door.routes.update({tag: world.bad.url, users: world.good.url})
        named = world.pair(world.good, world.bad, url=f"http://{tag}")
        result = observed(world, world.good, world.bad, pair=named, ingress=f"{door.url}/")
        del door.routes[tag]
        closed = observed(world, world.good, world.bad, pair=named, ingress=door.url)

    assert result.pairs == {"won": 0, "lost": 4, "tied": 0} and result.failures == {}
    assert {(item.host, item.path, item.headers["x-qinglan-shadow"]) for item in door.requests} == {(tag, V1, TOKEN)}
    assert closed.failures == {"canary_refused": 4}, "a gateway that knows no such host is no canary"


def test_while_there_is_no_canary_questions_pass_and_are_not_taken_up_later(world: World) -> None:
    eyes = Eyes(world, world.good, world.pair(world.good, world.bad))
    eyes.rollout.has_canary = False
    eyes.poll()
    world.good.ask(*QUERIES)
    eyes.poll()
    eyes.rollout.has_canary = True
    eyes.poll()

    assert sum(eyes.pairs.values()) == 0 and eyes.failures == {}


def test_a_log_of_digests_and_lines_that_are_none_are_counted_as_such(world: World, tmp_path: Path) -> None:
    pair = world.pair(world.good, world.bad)
    eyes = Eyes(world, world.good._replace(log=tmp_path), pair)
    eyes.poll()
    (tmp_path / "payloads").mkdir()
    eyes.poll()
    line = {"request_id": "r", "version": pair.stable, "tenant": "fivedoctors", "outcome": "answered"}
    lines = [orjson.dumps(line), b"{", orjson.dumps({**line, "tenant": {}}), orjson.dumps({**line, "version": "x"})]
    key = f"payloads/{datetime.now(UTC):%Y-%m-%d/%H%M%S}-x-000001.jsonl"
    open_store(str(tmp_path)).backend.create(key, b"\n".join(lines))
    eyes.poll()

    assert eyes.failures == {"no_text": 1, "unreadable": 2}


def test_the_judge_decides_in_both_orders_where_one_is_given(world: World, tmp_path: Path) -> None:
    """One that reads chooses the same rewrite in both places; one that goes by position has not decided."""

    async def judge(scope: Any, receive: Any, send: Any) -> None:
        body = await Request(scope, receive).json()
        shown = orjson.loads(body["messages"][-1]["content"])
        reads = "软胶囊" in shown["原始查询"]
        choice = ("乙" if shown["改写甲"] == "用户画像" else "甲") if reads else "甲"
        message = completion(orjson.dumps({"更好": choice, "理由": "。"}).decode())
        await Response(message, media_type="application/json")(scope, receive, send)

    async def run(url: str) -> Eyes:
        async with gateway(gateway_config(url), tmp_path) as base:
            return await asyncio.to_thread(observed, world, world.good, world.bad, judge=base)

    with running(judge) as url:
        eyes = asyncio.run(run(url))

    assert eyes.failures == {}
    assert eyes.pairs == {"won": 0, "lost": 2, "tied": 2}
