"""What a step's rewards ask of the gateway: each thing once."""

import asyncio
from collections.abc import Sequence

import orjson
import pytest

from qinglan.errors import OutageError
from qinglan.reward.config import RewardConfig
from qinglan.reward.reward_function import read_prompt
from qinglan.reward.scorer import Scorer
from tests.echo import Reply, Scripted, running
from tests.qinglan.reward.conftest import GOOD, NEED, QUESTION, TEACHER, extra_info

UNJUDGED = RewardConfig(judge_share=0.0, canary_share=0.0)
NOTHING_FOUND = Reply(200, orjson.dumps({"code": 200, "msg": "success", "data": {"recall": []}}))
REFUSED = Reply(503, orjson.dumps({"error": {"message": "away", "type": "outage"}}))


PROMPT = read_prompt({**extra_info(), "need": NEED}, "qinglan/fivedoctors")


def searched(gateway: Scripted) -> list[str]:
    return sorted(orjson.loads(body)["rewritten_query"] for _, body, _ in gateway.seen)


def steps(*texts: Sequence[str]) -> list[list[str]]:
    """What is searched for the rewrites of one prompt, step by step."""
    gateway, found = Scripted(NOTHING_FOUND), []

    async def run(url: str) -> None:
        async with Scorer(url, UNJUDGED) as scorer:
            for step in texts:
                gateway.seen = []
                assert len(await scorer.score_all([(PROMPT, text) for text in step])) == len(step)
                found.append(searched(gateway))

    with running(gateway) as url:
        asyncio.run(run(url))
    return found


def test_samples_of_a_prompt_ask_once_for_what_they_have_in_common() -> None:
    [step] = steps([GOOD, "虾青素", GOOD, GOOD])

    assert step == sorted([GOOD, "虾青素", TEACHER, QUESTION])


def test_a_prompt_that_comes_again_asks_for_its_rewrite_alone() -> None:
    _, second, third = steps([GOOD], ["虾青素"], [TEACHER])

    assert second == ["虾青素"]
    assert third == [], "what the teacher's rewrite finds is known"


def test_what_was_not_answered_is_asked_again() -> None:
    gateway = Scripted(REFUSED)

    async def run(url: str) -> None:
        async with Scorer(url, UNJUDGED) as scorer:
            with pytest.raises(OutageError):
                await scorer.score_all([(PROMPT, GOOD)])
            gateway.seen, gateway.replies = [], (NOTHING_FOUND,)
            await scorer.score_all([(PROMPT, GOOD)])

    with running(gateway) as url:
        asyncio.run(run(url))
    assert searched(gateway) == sorted([GOOD, TEACHER, QUESTION])
