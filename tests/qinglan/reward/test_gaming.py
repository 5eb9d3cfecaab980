"""The plan's reward is gamed, and the anchored one is not: what a search for the best text by each of them wins."""

import pytest

from benchmarks.reward_gaming import SEARCHED, TENANT, UNJUDGED, RewardTable, best_of, rows, searched, top1
from benchmarks.reward_world import opened
from qinglan.reward.config import RewardConfig


@pytest.mark.slow
def test_searching_by_the_plans_reward_wins_no_gold_and_by_the_anchored_one_wins_it_without_labels() -> None:
    plan, anchored = (RewardConfig(mode=mode, judge_share=SEARCHED) for mode in ("seed_v1", "anchored_v2"))
    with opened(TENANT, conversations=400, seed=100) as world:
        table = RewardTable(world)
        before = top1(table.student, rows(table, "dev", plan))

        assert best_of(rows(table, "dev", plan.model_copy(update={"judge_share": UNJUDGED}))) < before - 0.05
        assert searched(table, plan) <= before
        assert searched(table, anchored) > before + 0.05
