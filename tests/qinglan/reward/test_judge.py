"""The judge: pairs in both orders, control pairs, and how much it really weighs."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.llm.client import GatewayClient
from qinglan.prompts import judge_pair_messages
from qinglan.reward.episode import Prompt
from qinglan.reward.judge import Preference, combine_choices, compare_rewrites
from qinglan.reward.summary import summarise_rollouts, variance_shares
from tests.qinglan.reward.conftest import GOOD, TEACHER, extra_info
from tests.servers.echo_servers import Reply, Scripted, completion, gateway, gateway_config, running


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
    assert combine_choices(straight, swapped) == expected


def test_a_pair_is_asked_in_both_orders_through_the_gateway(tmp_path: Any) -> None:
    judge = Scripted(
        Reply(200, completion('{"更好": "甲", "理由": "先看到的"}'), {"content-type": "application/json"})
    )

    async def ask(url: str) -> Preference:
        async with gateway(gateway_config(url), tmp_path) as base, GatewayClient(base, "reward") as client:
            return await compare_rewrites(client, Prompt.model_validate(extra_info()), GOOD, TEACHER)

    with running(judge) as url:
        preference = asyncio.run(ask(url))

    shown = [json.loads(json.loads(body)["messages"][-1]["content"]) for _, body, _ in judge.requests]
    assert sorted(judgement["改写甲"] for judgement in shown) == sorted([GOOD, TEACHER])
    assert preference == Preference("tie", flipped=True)


@given(st.text(), st.text(), st.text())
def test_no_rewrite_can_leave_its_field_of_the_pair(question: str, first: str, second: str) -> None:
    prompt = Prompt.model_validate(extra_info(question=question or "问"))

    data = json.loads(judge_pair_messages(prompt, first, second)[1]["content"])

    assert (data["改写甲"], data["改写乙"]) == (first, second)


def rollout(judge: float, retrieval: float, **changes: float) -> dict[str, float]:
    names = (
        "floor", "labelled", "unjudged", "gold_known", "gold", "gold_teacher", "control_pair", "control_pair_failed",
        "win", "top1", "top1_teacher", "copied", "kept", "length", "numbers", "judged", "judge_failed",
    )  # fmt: skip
    usual = dict.fromkeys(names, 0.0)
    return {**usual, "score": judge + retrieval, "part_judge": judge, "part_retrieval": retrieval, **changes}


def test_the_judges_effective_weight_is_its_share_of_the_rewards_variance() -> None:
    rng = np.random.default_rng(2)
    judge, retrieval = rng.normal(0, 1, 20_000), rng.normal(0, 2, 20_000)

    result = variance_shares([rollout(*pair) for pair in zip(judge.tolist(), retrieval.tolist(), strict=True)])

    assert result["judge"] == pytest.approx(0.2, abs=0.02)  # 1 of 1 + 4
    assert sum(result.values()) == pytest.approx(1.0)


def test_a_summary_says_how_many_rollouts_are_by_labels_and_how_often_nobody_judged_the_first_passage() -> None:
    by_labels = [rollout(0.0, 0.0, gold_known=1.0, labelled=1.0, unjudged=value) for value in (1.0, 0.0, 0.0, 0.0)]
    result = summarise_rollouts([*by_labels, rollout(0.0, 0.0, gold_known=1.0, gold=1.0)])

    assert (result["labelled_share"], result["unjudged_share"], result["gold"]) == (0.8, 0.25, 0.2)
    assert "labelled_share" not in summarise_rollouts([rollout(0.0, 0.0, gold_known=1.0)])


def test_equal_rewards_give_no_term_a_share() -> None:
    assert variance_shares([rollout(0.1, 0.2)] * 3) == {"judge": 0.0, "retrieval": 0.0}
    assert variance_shares([rollout(0.1, 0.2, floor=1.0)]) == {}


def test_a_summary_counts_gold_where_it_is_known_and_control_pairs_where_they_were_run() -> None:
    result = summarise_rollouts([
        rollout(0.0, 0.4, gold_known=1.0, gold=1.0, win=1.0), rollout(0.0, -0.2, win=-1.0),
        rollout(0.0, 0.0, control_pair=1.0, control_pair_failed=1.0),
    ])  # fmt: skip

    assert (result["gold"], result["control_pairs_failed"]) == (1.0, 1.0)
    assert result["win_rate"] == result["loss_rate"] == pytest.approx(1 / 3)
    assert summarise_rollouts([]) == {}
