"""The judge: pairs in both orders, canaries, the sample, what is imputed, and how much it really weighs."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.llm.client import Gateway
from qinglan.prompts import judge_pair_messages
from qinglan.reward.episode import Prompt
from qinglan.reward.impute import FEWEST, LEAST, MOST, UNKNOWN, Imputer, sampled
from qinglan.reward.judge import Preference, flip_rate, preferred, settle
from qinglan.reward.summary import shares, summary
from tests.echo import Reply, Scripted, completion, gateway, gateway_config, running
from tests.qinglan.reward.conftest import GOOD, TEACHER, extra_info


@pytest.mark.parametrize(
    ("straight", "swapped", "expected"),
    [
        ("甲", "乙", Preference("first", False)),
        ("乙", "甲", Preference("second", False)),
        ("甲", "甲", Preference("tie", True)),
        ("乙", "乙", Preference("tie", True)),
        ("相同", "相同", Preference("tie", False)),
        ("甲", "相同", Preference("tie", False)),
        ("相同", "甲", Preference("tie", False)),
    ],
)
def test_only_what_is_preferred_in_both_orders_has_won(straight: str, swapped: str, expected: Preference) -> None:
    assert settle(straight, swapped) == expected


def test_a_judge_that_goes_by_position_shows_in_the_flip_rate() -> None:
    assert flip_rate([settle("甲", "甲"), settle("甲", "乙")]) == 0.5
    assert flip_rate([]) == 0.0


def test_a_pair_is_asked_in_both_orders_through_the_gateway(tmp_path: Any) -> None:
    judge = Scripted(
        Reply(200, completion('{"更好": "甲", "理由": "先看到的"}'), {"content-type": "application/json"})
    )

    async def ask(url: str) -> Preference:
        async with gateway(gateway_config(url), tmp_path) as base, Gateway(base, "reward") as client:
            return await preferred(client, Prompt.model_validate(extra_info()), GOOD, TEACHER)

    with running(judge) as url:
        preference = asyncio.run(ask(url))

    shown = [json.loads(json.loads(body)["messages"][-1]["content"]) for _, body, _ in judge.seen]
    assert sorted(one["改写甲"] for one in shown) == sorted([GOOD, TEACHER])
    assert preference == Preference("tie", flipped=True)


@given(st.text(), st.text(), st.text())
def test_no_rewrite_can_leave_its_field_of_the_pair(question: str, first: str, second: str) -> None:
    prompt = Prompt.model_validate(extra_info(question=question or "问"))

    data = json.loads(judge_pair_messages(prompt, first, second)[1]["content"])

    assert (data["改写甲"], data["改写乙"]) == (first, second)


def test_about_the_share_of_prompts_is_sampled_whole_and_by_seed() -> None:
    ids = [f"row-{number}" for number in range(4000)]
    once, again, other = ([sampled(id, 0.3, seed, "judge") for id in ids] for seed in (1, 1, 2))

    assert sum(once) / len(ids) == pytest.approx(0.3, abs=0.03)
    assert once == again != other
    assert not any(sampled(id, 0.0, 1, "judge") for id in ids)
    assert all(sampled(id, 1.0, 1, "judge") for id in ids)


def test_before_it_has_seen_enough_the_imputer_says_the_mean() -> None:
    imputer = Imputer(features=2)
    assert imputer.predict((1.0, 1.0)) == UNKNOWN

    for score in (0.4, 0.8):
        imputer.add((score, 0.0), score)

    assert imputer.predict((0.0, 0.0)) == imputer.predict((1.0, 1.0)) == pytest.approx(0.6)


def test_then_it_follows_what_the_judge_rewards() -> None:
    imputer, rng = Imputer(features=2), np.random.default_rng(0)
    for quality, top1 in rng.random((400, 2)):
        imputer.add((quality, top1), 0.3 + 0.5 * quality)

    assert imputer.predict((0.0, 0.5)) == pytest.approx(0.3, abs=0.02)
    assert imputer.predict((1.0, 0.5)) == pytest.approx(0.8, abs=0.02)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(LEAST, MOST)), min_size=FEWEST, max_size=60))
def test_an_imputed_score_is_one_that_a_judge_could_give(seen: list[tuple[float, float, float]]) -> None:
    imputer = Imputer(features=2)
    for quality, top1, score in seen:
        imputer.add((quality, top1), score)

    assert LEAST <= imputer.predict((1.0, 0.0)) <= MOST


def test_imputing_keeps_more_of_the_judges_weight_than_filling_in_zero() -> None:
    """A judge whose opinion follows quality, and three prompts in ten judged."""
    rng, imputer = np.random.default_rng(1), Imputer(features=2)
    quality = rng.random(3000)
    judge = np.clip(0.3 + 0.5 * quality + rng.normal(0, 0.1, 3000), LEAST, MOST)
    known = rng.random(3000) < 0.3
    for q, j in zip(quality[known], judge[known], strict=True):
        imputer.add((q, 0.0), j)
    imputed = np.array([imputer.predict((q, 0.0)) for q in quality])

    def slope(filled: Any) -> float:
        """How far the judge's own opinion moves the reward's judge part."""
        return float(np.cov(judge, 0.35 * filled)[0, 1] / np.var(judge))

    assert slope(np.where(known, judge, 0.0)) < 0.15
    assert slope(np.where(known, judge, imputed)) > 0.25


def rollout(judge: float, retrieval: float, **changes: float) -> dict[str, float]:
    names = (
        "floor", "gold_known", "gold", "gold_teacher", "canary", "canary_failed", "win", "top1", "top1_teacher",
        "copied", "kept", "length", "numbers", "judged", "judge_failed",
    )  # fmt: skip
    usual = dict.fromkeys(names, 0.0)
    return {**usual, "score": judge + retrieval, "part_judge": judge, "part_retrieval": retrieval, **changes}


def test_the_judges_effective_weight_is_its_share_of_the_rewards_variance() -> None:
    rng = np.random.default_rng(2)
    judge, retrieval = rng.normal(0, 1, 20_000), rng.normal(0, 2, 20_000)

    found = shares([rollout(*pair) for pair in zip(judge.tolist(), retrieval.tolist(), strict=True)])

    assert found["judge"] == pytest.approx(0.2, abs=0.02)  # 1 of 1 + 4
    assert sum(found.values()) == pytest.approx(1.0)


def test_equal_rewards_give_no_term_a_share() -> None:
    assert shares([rollout(0.1, 0.2)] * 3) == {"judge": 0.0, "retrieval": 0.0}
    assert shares([rollout(0.1, 0.2, floor=1.0)]) == {}


def test_a_summary_counts_gold_where_it_is_known_and_canaries_where_they_were_run() -> None:
    found = summary([
        rollout(0.0, 0.4, gold_known=1.0, gold=1.0, win=1.0), rollout(0.0, -0.2, win=-1.0),
        rollout(0.0, 0.0, canary=1.0, canary_failed=1.0),
    ])  # fmt: skip

    assert (found["gold"], found["canaries_failed"]) == (1.0, 1.0)
    assert found["win_rate"] == found["loss_rate"] == pytest.approx(1 / 3)
    assert summary([]) == {}
