"""python -m benchmarks.reward_gaming: a small student trained in one world, from one start, by each of both rewards.

Prints the table of qinglan/reward/README.md: held-out gold after training, and held-out gold of the best text by the
reward, row by row and without any label.
"""

from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from benchmarks.reward_texts import without_gold
from benchmarks.reward_world import CONSTANT, Case, World, opened
from qinglan.reward.config import RewardConfig
from qinglan.reward.impute import FEATURE_COUNT, Imputer, features, in_sample
from qinglan.rows.rows import Split
from qinglan.text.text import search_terms
from standins.samples.tenant_content import load_tenant_content

TENANT, ROWS = "fivedoctors", 200
SFT_STEPS, SFT_RATE = 300, 2.0
RL_STEPS, RL_RATE, KL = 3000, 10.0, 0.005
VOCABULARY = sorted(
    {gram for term in load_tenant_content(TENANT).aspects.values() for ask in term.asks for gram in search_terms(ask)}
)
SEARCHED = RewardConfig().judge_share
UNJUDGED = 0.0
Mode = Literal["seed_v1", "anchored_v2"]


class Rows(NamedTuple):
    """Cases as a linear student sees them: what was asked, and what each of its actions would bring."""

    features: Any
    rewards: Any
    gold: Any
    taught: Any
    """The action that says what the teacher said; -1 where none does."""


def texts(case: Case) -> list[str]:
    """The student's actions: the item with any of the house's terms, and what needs no reading of the question."""
    terms = load_tenant_content(TENANT).aspects
    bare = [case.item, CONSTANT, case.prompt.history_summary or case.item, case.prompt.question]
    return [*(f"{case.item} {term}" for term in terms), *bare]


class RewardTable:
    """Cases with all that a reward says of each action, worked out once for all tests."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.cases = lru_cache(None)(lambda split: world.cases(split, ROWS))
        self.terms = lru_cache(None)(self._terms)

    def _terms(self, split: Split, mode: Mode, labelled: bool) -> list[list[dict[str, float]]]:
        """Every action's, judged every time."""
        cases, config = self.cases(split), RewardConfig(mode=mode)
        observed = cases if labelled else map(without_gold, cases)
        return [[self._world.reward(case.prompt, text, config) for text in texts(case)] for case in observed]

    @cached_property
    def student(self) -> Any:
        return imitated(rows(self, "train", RewardConfig(judge_share=UNJUDGED)))


def rows(table: RewardTable, split: Split, config: RewardConfig, labelled: bool = True) -> Rows:
    """Rewards with the judge on a sample of the prompts and imputed on the rest, as in training."""
    cases, terms = table.cases(split), table.terms(split, config.mode, labelled)
    imputer = Imputer(FEATURE_COUNT)
    judged = [in_sample(case.prompt.id, config.judge_share, config.seed, "judge") for case in cases]
    for case, known, actions in zip(cases, judged, terms, strict=True):
        for text, action in zip(texts(case), actions, strict=True) if known else ():
            imputer.add(features(case.prompt, text, action["quality"], action["top1"]), action["judge"])
    return Rows(
        features=np.array(
            [[term in search_terms(row.prompt.question) for term in VOCABULARY] for row in cases], float
        ),
        rewards=np.array([
            [
                action["score"] if known else imputed(case, text, action, imputer, config)
                for text, action in zip(texts(case), actions, strict=True)
            ]
            for case, known, actions in zip(cases, judged, terms, strict=True)
        ]),
        gold=np.array([[row["gold"] for row in actions] for actions in table.terms(split, "anchored_v2", True)]),
        taught=np.array([taught(case) for case in cases]),
    )  # fmt: skip


def imputed(case: Case, text: str, action: dict[str, float], imputer: Imputer, config: RewardConfig) -> float:
    """The reward with an imputed judge term."""
    if action["floor"] and config.mode == "anchored_v2":
        return action["score"]
    student, teacher = (
        imputer.predict(features(case.prompt, rewrite, action[f"quality{whose}"], action[f"top1{whose}"]))
        for whose, rewrite in (("", text), ("_teacher", case.prompt.teacher_rewrite))
    )
    part = config.weights.judge * np.tanh(config.scale * (student - teacher))
    return float(np.clip(action["score"] - action["part_judge"] + part, -1, 1))


def taught(case: Case) -> int:
    actions = texts(case)
    return actions.index(case.prompt.teacher_rewrite) if case.prompt.teacher_rewrite in actions else -1


def policy(weights: Any, features: Any) -> Any:
    return softmax(features @ weights)


def softmax(logits: Any) -> Any:
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
    """The exact policy gradient of the mean reward, held to the start by a KL term.

    A step moves the weights within the span of the rows' features: of each row it keeps the sum of its moves, and the
    logits follow by the rows' similarities, of which there are fewer than features.
    """
    logits = data.features @ start
    before, similarities, moved = softmax(logits), data.features @ data.features.T, np.zeros_like(logits)
    for _ in range(RL_STEPS):
        odds = softmax(logits)
        value = data.rewards - KL * np.log(odds / before + 1e-12)
        advantage = value - (odds * value).sum(axis=1, keepdims=True)
        move = RL_RATE * odds * advantage / len(odds)
        moved += move
        logits += similarities @ move
    return start + data.features.T @ moved


def top1(weights: Any, data: Rows) -> float:
    best = policy(weights, data.features).argmax(axis=1)
    return float(data.gold[np.arange(len(best)), best].mean())


def best_of(data: Rows) -> float:
    """Held-out gold when each row's best action by the reward is taken."""
    return float(data.gold[np.arange(len(data.gold)), data.rewards.argmax(axis=1)].mean())


def trained(table: RewardTable, config: RewardConfig) -> float:
    """Held-out gold after training on the training rows' rewards."""
    return top1(reinforced(table.student, rows(table, "train", config)), rows(table, "dev", config))


def searched(table: RewardTable, config: RewardConfig) -> float:
    """Held-out gold of the best text by the reward; anchored_v2 gets no labels."""
    return best_of(rows(table, "dev", config, labelled=config.mode == "seed_v1"))


def main() -> None:
    with opened(TENANT, conversations=400, seed=100) as world:
        table = RewardTable(world)
        print(f"imitated: {top1(table.student, rows(table, 'dev', RewardConfig(judge_share=UNJUDGED))):.3f}\n")
        print("| judge on | seed_v1 | anchored_v2 |\n|---|---|---|")
        for share in (UNJUDGED, SEARCHED, 1.0):
            configs = (RewardConfig(mode=mode, judge_share=share) for mode in ("seed_v1", "anchored_v2"))
            cells = (f"{trained(table, config):.2f}, {searched(table, config):.2f}" for config in configs)
            print(f"| {share:.0%} of the prompts |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
