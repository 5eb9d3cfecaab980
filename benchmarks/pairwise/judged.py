"""The paid judge's scores in a run: its rollouts, oldest first, and how they are cut into known and asked."""

import random
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from qinglan.errors import ConfigError
from qinglan.reward.episode import Prompt
from qinglan.reward.impute import in_sample
from qinglan.reward.summary import read_rollouts
from qinglan.reward.terms.floor_checks import strip_turn_end

HELD_OUT = 0.3
"""Share of the conversations with a judged prompt that nothing is fitted on."""

SEED = 42


class Text(NamedTuple):
    """A rewrite that was judged, and what retrieval says of it."""

    conversation: str
    prompt: Prompt
    rewrite: str
    quality: float
    top1: float
    judge: float


class Rolled(NamedTuple):
    """One judged rollout beside the teacher's rewrite of the same prompt."""

    student: Text
    teacher: Text

    @property
    def ahead(self) -> float:
        return self.student.judge - self.teacher.judge


class Cut(NamedTuple):
    """Rollouts to learn from, and rollouts to judge; they share no conversation."""

    known: list[Rolled]
    queried: list[Rolled]


def cuts(rolled: Sequence[Rolled]) -> dict[str, Cut]:
    """By what has been judged: half of the run, when the other half is asked about; or all of it, with hindsight."""
    half = len(rolled) // 2
    spans = {"mid-run": (rolled[:half], rolled[half:]), "hindsight": (rolled, rolled)}
    return {
        name: Cut(
            [entry for entry in known if not _held_out(entry)], [entry for entry in queried if _held_out(entry)]
        )
        for name, (known, queried) in spans.items()
    }


def pairs(rolled: Iterable[Rolled], most: int | None = None) -> list[tuple[Text, Text]]:
    """The better and the worse, by the judge, of every two texts of one prompt; at most so many of each prompt."""
    texts: dict[str, dict[str, Text]] = {}
    for text in (text for entry in rolled for text in (entry.teacher, entry.student)):
        texts.setdefault(text.prompt.id, {}).setdefault(text.rewrite, text)
    draw, collected = random.Random(SEED), []
    for id in sorted(texts):
        ranked = sorted(texts[id].values(), key=lambda text: -text.judge)
        apart = [(a, b) for a, b in combinations(ranked, 2) if a.judge > b.judge]
        collected += apart if most is None or len(apart) <= most else draw.sample(apart, most)
    return collected


def read_rolled(run: Path) -> list[Rolled]:
    """A run without judged rollouts is a ConfigError."""
    import pyarrow.parquet

    rollouts = [
        entry for folder in run.glob("scratch/ppo/*/reward") for entry in read_rollouts(folder)
        if entry["judged"] and entry["split"] == "train"
    ]  # fmt: skip
    if not rollouts:
        raise ConfigError(
            f"{run}: no judged rollouts of a PPO training there. Run `make demo` first, or name runs: "
            "python -m benchmarks.pairwise RUN ..."
        )
    path = run / "files" / "ppo" / "train.parquet"
    rows = pyarrow.parquet.read_table(path).to_pylist()
    infos = {
        row["extra_info"]["id"]: {**row["extra_info"], "need": row["reward_model"]["ground_truth"]} for row in rows
    }
    prompts = {id: Prompt.model_validate(info) for id, info in infos.items()}

    def text(entry: dict[str, float], id: str, rewrite: str, whose: str) -> Text:
        figures = (entry[f"{name}{whose}"] for name in ("quality", "top1", "judge"))
        return Text(infos[id]["conversation_id"], prompts[id], rewrite, *figures)

    return [
        Rolled(
            text(entry, entry["id"], strip_turn_end(entry["rewrite"]), ""),
            text(entry, entry["id"], prompts[entry["id"]].teacher_rewrite, "_teacher"),
        )
        for entry in sorted(rollouts, key=lambda entry: entry["at"])
    ]


def _held_out(entry: Rolled) -> bool:
    return in_sample(entry.student.conversation, HELD_OUT, SEED, "pairwise")
