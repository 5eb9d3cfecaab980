"""What the judge decided in a run: the texts it scored for each prompt, and the rollouts, oldest first."""

import random
from collections.abc import Collection, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from qinglan.errors import ConfigError
from qinglan.reward.entry import read_prompt
from qinglan.reward.episode import Prompt
from qinglan.reward.floors import answer
from qinglan.reward.impute import sampled
from qinglan.reward.summary import Rollout, read_rollouts

HELD_OUT = 0.3
"""Share of the conversations with a judged prompt that nothing is fitted on."""

SEED = 42


class Side(NamedTuple):
    """A text that was judged, and what retrieval says of it."""

    judge: float
    quality: float
    top1: float


class Rolled(NamedTuple):
    """One judged rollout beside the teacher's rewrite of the same prompt."""

    id: str
    rewrite: str
    teacher_rewrite: str
    student: Side
    teacher: Side


class Pair(NamedTuple):
    """Two texts of one prompt that the judge does not hold for equal."""

    id: str
    better: str
    worse: str


class Decisions(NamedTuple):
    """All that the judge said in one run."""

    prompts: dict[str, Prompt]
    conversations: dict[str, str]
    rollouts: list[Rolled]
    """Oldest first."""

    sides: dict[str, dict[str, Side]]
    """By prompt and text, the teacher's among them."""

    @property
    def held_out(self) -> set[str]:
        """The prompts of conversations that nothing is fitted on."""
        return {id for id in self.sides if sampled(self.conversations[id], HELD_OUT, SEED, "pairwise")}

    def pairs(self, ids: Collection[str], most: int | None = None) -> list[Pair]:
        """Every pair of texts of these prompts that the judge puts in an order, at most so many of each prompt."""
        draw = random.Random(SEED)
        return [pair for id in sorted(ids) for pair in _some(_pairs(id, self.sides[id]), most, draw)]


def read_decisions(run: Path) -> Decisions:
    """What a run's folder holds of its judge; a run without any is a ConfigError."""
    rollouts = [
        one for folder in run.glob("scratch/ppo/*/reward") for one in read_rollouts(folder)
        if one["judged"] and one["split"] == "train"
    ]  # fmt: skip
    if not rollouts:
        raise ConfigError(f"{run}: no judged rollouts of a PPO training there. Run `make demo` first, or name a run.")
    prompts, conversations = _prompts(run / "files" / "ppo" / "train.parquet")
    rolled = [_rolled(one, prompts[one["id"]]) for one in sorted(rollouts, key=lambda one: one["at"])]
    sides: dict[str, dict[str, Side]] = {}
    for one in rolled:
        texts = sides.setdefault(one.id, {one.teacher_rewrite: one.teacher})
        texts.setdefault(one.rewrite, one.student)
    return Decisions(prompts, conversations, rolled, sides)


def _prompts(path: Path) -> tuple[dict[str, Prompt], dict[str, str]]:
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(path).to_pylist()
    infos = [{**row["extra_info"], "need": row["reward_model"]["ground_truth"]} for row in rows]
    prompts = {info["id"]: read_prompt(info, str(path)) for info in infos}
    return prompts, {info["id"]: info["conversation_id"] for info in infos}


def _rolled(one: Rollout, prompt: Prompt) -> Rolled:
    student, teacher = (
        Side(one[f"judge{whose}"], one[f"quality{whose}"], one[f"top1{whose}"]) for whose in ("", "_teacher")
    )
    return Rolled(prompt.id, answer(one["rewrite"]), prompt.teacher_rewrite, student, teacher)


def _pairs(id: str, sides: dict[str, Side]) -> list[Pair]:
    ranked = sorted(sides, key=lambda text: -sides[text].judge)
    return [Pair(id, a, b) for a, b in combinations(ranked, 2) if sides[a].judge > sides[b].judge]


def _some(pairs: Sequence[Pair], most: int | None, draw: random.Random) -> Sequence[Pair]:
    return pairs if most is None or len(pairs) <= most else draw.sample(pairs, most)
