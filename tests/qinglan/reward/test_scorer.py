"""The requests of a step's rewards to the gateway: each one once."""

import asyncio
from collections.abc import Sequence

import orjson
import pytest

from qinglan.errors import DataError
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.reward.config import RewardConfig, StyleRewardConfig
from qinglan.reward.reward_function import read_prompt
from qinglan.reward.scorer import Scorer
from tests.qinglan.reward.conftest import GOOD, NEED, extra_info
from tests.servers.echo_servers import Reply, Scripted, running

UNJUDGED = RewardConfig(judge_share=0.0, control_pair_share=0.0)
NOTHING_FOUND = Reply(200, orjson.dumps({"code": 200, "msg": "success", "data": {"recall": []}}))
REFUSED = Reply(503, orjson.dumps({"error": {"message": "away", "type": "outage"}}))


PROMPT = read_prompt(extra_info(), NEED, "qinglan/fivedoctors")


def searched(gateway: Scripted) -> list[str]:
    return sorted(orjson.loads(body)["rewritten_query"] for _, body, _ in gateway.requests)


def steps(*texts: Sequence[str]) -> list[list[str]]:
    """Queries that are searched for the rewrites of one prompt, step by step."""
    gateway, result = Scripted(NOTHING_FOUND), []

    async def run(url: str) -> None:
        async with Scorer(url, UNJUDGED) as scorer:
            for step in texts:
                gateway.requests = []
                assert len(await scorer.score_all([(PROMPT, text) for text in step])) == len(step)
                result.append(searched(gateway))

    with running(gateway) as url:
        asyncio.run(run(url))
    return result


def test_a_step_asks_once_for_each_rewrite_and_never_for_teacher_or_question() -> None:
    [step] = steps([GOOD, "虾青素", GOOD, GOOD])

    assert step == sorted([GOOD, "虾青素"])


def test_a_row_of_other_retrieval_settings_is_refused_before_anything_is_asked() -> None:
    row = extra_info(retrieved_with=RetrievalConfig(top_k=20).model_dump())
    other = read_prompt(row, NEED, "qinglan/fivedoctors")
    gateway = Scripted(NOTHING_FOUND)

    async def run(url: str) -> None:
        async with Scorer(url, UNJUDGED) as scorer:
            with pytest.raises(DataError, match=r"r1.*top_k=20.*top_k=10.*validate and convert again"):
                await scorer.score_all([(PROMPT, GOOD), (other, GOOD)])

    with running(gateway) as url:
        asyncio.run(run(url))
    assert gateway.requests == []


def test_rows_of_two_tenants_with_the_same_id_share_no_evidence() -> None:
    other = read_prompt(extra_info(tenant_id="chengla"), NEED, "qinglan/chengla")
    gateway = Scripted(NOTHING_FOUND)

    async def run(url: str) -> None:
        async with Scorer(url, UNJUDGED) as scorer:
            assert len(await scorer.score_all([(PROMPT, GOOD), (other, GOOD), (other, GOOD)])) == 3

    with running(gateway) as url:
        asyncio.run(run(url))
    assert sorted(orjson.loads(body)["tenant_id"] for _, body, _ in gateway.requests) == ["chengla", "fivedoctors"]


def test_a_rewrite_that_the_style_service_refuses_earns_no_style_and_ends_no_training() -> None:
    style = StyleRewardConfig(url="http://127.0.0.1:9", weight=0.1, wanted=("诚实",))
    short = Reply(200, orjson.dumps({"predicted_label": "诚实", "confidence": 1.0, "probabilities": {"诚实": 1.0}}))

    async def run(gateway: str, service: str) -> list[dict[str, float]]:
        config = UNJUDGED.model_copy(update={"style": style.model_copy(update={"url": service})})
        async with Scorer(gateway, config) as scorer:
            return await scorer.score_all([(PROMPT, GOOD)])

    with running(Scripted(NOTHING_FOUND)) as gateway, running(Scripted(Reply(413, b"{}"), short)) as service:
        [refused] = asyncio.run(run(gateway, service))
    with running(Scripted(NOTHING_FOUND)) as gateway, running(Scripted(short)) as service:
        [scored] = asyncio.run(run(gateway, service))
    assert scored["score"] - refused["score"] == pytest.approx(0.1)
