"""Gaming is shown: one small student trained twice in the same world, from the same start, by the two rewards."""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest

from benchmarks.reward_texts import without_gold
from benchmarks.reward_world import CONSTANT, Case, World, opened
from qinglan.reward.config import RewardConfig
from qinglan.reward.impute import FEATURES, Imputer, features, sampled
from qinglan.samples.world import load_world
from qinglan.text import bigrams

pytestmark = pytest.mark.slow
TENANT, ROWS = "fivedoctors", 200
SFT_STEPS, SFT_RATE = 300, 2.0
RL_STEPS, RL_RATE, KL = 3000, 10.0, 0.005
GOLD = RewardConfig()
VOCABULARY = sorted(
    {gram for term in load_world(TENANT).aspects.values() for ask in term.asks for gram in bigrams(ask)}
)
SEARCHED = RewardConfig().judge_share
UNJUDGED = 0.0


class Rows(NamedTuple):
    """Cases as a linear student sees them: what was asked, and what each of its actions would bring."""

    features: Any
    rewards: Any
    gold: Any
    taught: Any
    """The action that says what the teacher said; -1 where none does."""


def texts(case: Case) -> list[str]:
    """The student's actions: the item with any of the house's terms, and what needs no reading of the question."""
    terms = load_world(TENANT).aspects
    bare = [case.item, CONSTANT, case.prompt.history_summary or case.item, case.prompt.question]
    return [*(f"{case.item} {term}" for term in terms), *bare]


def rows(world: World, cases: list[Case], config: RewardConfig, labelled: bool = True) -> Rows:
    """Rewards with the judge on a sample of the prompts and imputed on the rest, as in training."""
    seen = cases if labelled else list(map(without_gold, cases))
    terms = [[world.reward(case.prompt, text, config) for text in texts(case)] for case in seen]
    imputer = Imputer(FEATURES)
    judged = [sampled(case.prompt.id, config.judge_share, config.seed, "judge") for case in cases]
    for case, known, actions in zip(cases, judged, terms, strict=True):
        for text, action in zip(texts(case), actions, strict=True) if known else ():
            imputer.add(features(case.prompt, text, action["quality"], action["top1"]), action["judge"])
    return Rows(
        features=np.array([[gram in bigrams(case.prompt.question) for gram in VOCABULARY] for case in cases], float),
        rewards=np.array([
            [
                action["score"] if known else imputed(case, text, action, imputer, config)
                for text, action in zip(texts(case), actions, strict=True)
            ]
            for case, known, actions in zip(cases, judged, terms, strict=True)
        ]),
        gold=np.array([[world.reward(case.prompt, text, GOLD)["gold"] for text in texts(case)] for case in cases]),
        taught=np.array([taught(case) for case in cases]),
    )  # fmt: skip


def imputed(case: Case, text: str, action: dict[str, float], imputer: Imputer, config: RewardConfig) -> float:
    """The reward with an imputed judge term."""
    if action["floor"] and config.mode == "anchored_v2":
        return action["score"]
    student, teacher = (
        imputer.predict(features(case.prompt, said, action[f"quality{whose}"], action[f"top1{whose}"]))
        for whose, said in (("", text), ("_teacher", case.prompt.teacher_rewrite))
    )
    part = config.weights.judge * np.tanh(config.scale * (student - teacher))
    return float(np.clip(action["score"] - action["part_judge"] + part, -1, 1))


def taught(case: Case) -> int:
    said = texts(case)
    return said.index(case.prompt.teacher_rewrite) if case.prompt.teacher_rewrite in said else -1


def policy(weights: Any, features: Any) -> Any:
    logits = features @ weights
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def imitated(data: Rows) -> Any:
    """SFT: the weights that say what the teacher said, where it said something the student can say."""
    weights = np.zeros((data.features.shape[1], data.rewards.shape[1]))
    known = data.taught >= 0
    target = np.eye(data.rewards.shape[1])[data.taught[known]]
    for _ in range(SFT_STEPS):
        odds = policy(weights, data.features[known])
        weights += SFT_RATE * data.features[known].T @ (target - odds) / known.sum()
    return weights


def reinforced(start: Any, data: Rows) -> Any:
    """The exact policy gradient of the mean reward, held to the start by a KL term."""
    weights, before = start.copy(), policy(start, data.features)
    for _ in range(RL_STEPS):
        odds = policy(weights, data.features)
        value = data.rewards - KL * np.log(odds / before + 1e-12)
        advantage = value - (odds * value).sum(axis=1, keepdims=True)
        weights += RL_RATE * data.features.T @ (odds * advantage) / len(odds)
    return weights


def top1(weights: Any, data: Rows) -> float:
    best = policy(weights, data.features).argmax(axis=1)
    return float(data.gold[np.arange(len(best)), best].mean())


def best_of(data: Rows) -> float:
    """Held-out gold when each row's best action by the reward is taken."""
    return float(data.gold[np.arange(len(data.gold)), data.rewards.argmax(axis=1)].mean())


def mean_reward(weights: Any, data: Rows) -> float:
    return float((policy(weights, data.features) * data.rewards).sum(axis=1).mean())


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with opened(TENANT, conversations=400, seed=100) as found:
        yield found


@pytest.fixture(scope="module")
def student(world: World) -> Any:
    return imitated(rows(world, world.cases("train", ROWS), RewardConfig()))


def trained(world: World, student: Any, mode: Literal["seed_v1", "anchored_v2"]) -> tuple[float, float]:
    """How held-out reward and held-out gold changed by training on the training rows' rewards."""
    config = RewardConfig(mode=mode, judge_share=UNJUDGED)
    held_out = rows(world, world.cases("dev", ROWS), config)
    better = reinforced(student, rows(world, world.cases("train", ROWS), config))
    return (
        mean_reward(better, held_out) - mean_reward(student, held_out),
        top1(better, held_out) - top1(student, held_out),
    )


def test_training_on_the_plans_retrieval_score_raises_the_reward_and_loses_held_out_gold(
    world: World, student: Any
) -> None:
    reward, gold = trained(world, student, "seed_v1")

    assert reward > 0.01
    assert gold < -0.03


def test_training_on_the_anchored_reward_raises_held_out_gold_too(world: World, student: Any) -> None:
    reward, gold = trained(world, student, "anchored_v2")

    assert reward > 0.01
    assert gold > 0.05


def test_searching_by_the_plans_reward_wins_no_gold_and_by_the_anchored_one_wins_it_without_labels(
    world: World, student: Any
) -> None:
    cases = world.cases("dev", ROWS)
    plan, ours = (RewardConfig(mode=mode, judge_share=SEARCHED) for mode in ("seed_v1", "anchored_v2"))
    gamed, anchored = rows(world, cases, plan), rows(world, cases, ours, labelled=False)
    alone = rows(world, cases, plan.model_copy(update={"judge_share": UNJUDGED}))
    before = top1(student, gamed)

    assert best_of(alone) < before - 0.05
    assert best_of(gamed) <= before
    assert best_of(anchored) > before + 0.05
