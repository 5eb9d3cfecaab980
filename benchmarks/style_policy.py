"""python -m benchmarks.style_policy: how far GRPO takes a tiny responder into a manner, and what others say of it.

Everything is made here from the seeded sample: rows, base, reward model, and then one policy for each wanted manner.
Three look at held-out answers before and after: the reward model, the independent judge, and the sample's own list
of what each manner says, which neither of them has seen. Last, a reward model that learned a shortcut is gamed.
"""

import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.report import report
from benchmarks.style_world import LAPTOP, SOLD, learned_style_model, planted, tiny_base, write_style_rows
from examples.style_policy.report import FINAL
from examples.style_policy.snapshots import SNAPSHOTS
from examples.style_policy.stage import StylePolicyCounts, style_policy
from qinglan.errors import TrainingError
from qinglan.style.labels import DEFAULT_LABELS
from qinglan.style.model import StyleModel
from qinglan.style.rows import read_split
from standins.samples.style import load_manners

ROWS, TEXTS, SEED, EPOCHS = 3000, 8000, 100, 5
MANNERS = ("诚实", "无伤害")
TARGET = 0.6
"""Share of the reward's rise that the independent judge should confirm."""


def main(manner: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.environ["QINGLAN_SCRATCH"] = str(folder / "scratch")
        accuracy = prepare(folder)
        print(f"reward model: right in {accuracy:.3f} of the test rows")
        policies = {name: trained(folder, name) for name in manner}
        shortcut = gamed(folder)
    confirmed = min(figure["confirmed"] for figure in policies.values())
    ok = confirmed >= TARGET and bool(shortcut["alarm"])
    report("style-policy", confirmed, TARGET, ok, reward_model=round(accuracy, 3), **policies, shortcut=shortcut)


def prepare(folder: Path) -> float:
    """Rows, base and reward model; how often the reward model is right on test."""
    write_style_rows(folder / "rows", ROWS, SEED)
    tiny_base(folder / "base", TEXTS)
    learned_style_model(folder / "style", folder / "base", read_split(folder / "rows", "train")[0], EPOCHS)
    test, _ = read_split(folder / "rows", "test")
    measured = StyleModel.load(folder / "style").probabilities([row.input for row in test]).argmax(axis=1)
    return float(np.mean(measured == [DEFAULT_LABELS.ids[row.label] for row in test]))


def trained(folder: Path, manner: str) -> dict[str, Any]:
    """One policy, its figures, and some of its answers printed."""
    config, started = LAPTOP.model_copy(update={"rewarded": (manner,)}), time.perf_counter()
    counts = style_policy(
        folder / "rows", folder / "style", folder / "base", folder / manner, folder / f"{manner}-log", config
    )
    seconds = time.perf_counter() - started
    rows = [orjson.loads(line) for line in (folder / f"{manner}-log" / FINAL).read_bytes().splitlines()]
    for row in rows[:3]:
        print(f"{row['prompt']}\n  start: {row['start']['answer']}\n  now:   {row['now']['answer']}")
    result = {name: manners([row[name]["answer"] for row in rows], manner) for name in ("start", "now")}
    return figures(counts, result, seconds)


def gamed(folder: Path) -> dict[str, Any]:
    """The same training on a reward model that learned to take one word for selling: what its last look saw."""
    reward = folder / "planted"
    learned_style_model(reward, folder / "base", list(map(planted, read_split(folder / "rows", "train")[0])), EPOCHS)
    before, result = set(folder.glob(f"scratch/style_policy/*/{SNAPSHOTS}")), ""
    try:
        config = LAPTOP.model_copy(update={"rewarded": (SOLD,)})
        style_policy(folder / "rows", reward, folder / "base", folder / "sold", folder / "sold-log", config)
    except TrainingError as error:
        result = str(error).partition(" Log: ")[0]
    [snapshot] = set(folder.glob(f"scratch/style_policy/*/{SNAPSHOTS}")) - before
    first, *_, last = (orjson.loads(line) for line in snapshot.read_bytes().splitlines())
    numbers = {"step": last["step"], "judge_rise_low": last["judge_low"], "judge_rise_high": last["judge_high"]}
    for name in ("reward", "judge"):
        numbers |= {f"{name}_before": first[name], f"{name}_after": last[name]}
    return {"alarm": result, **{name: round(value, 3) for name, value in numbers.items()}}


def figures(counts: StylePolicyCounts, result: dict[str, float], seconds: float) -> dict[str, Any]:
    rise = (counts.judge_after - counts.judge_before) / (counts.reward_after - counts.reward_before)
    numbers = {name: round(value, 3) for name, value in counts._asdict().items()}
    return {
        "confirmed": round(rise, 3), "said_before": round(result["start"], 3), "said_after": round(result["now"], 3),
        "seconds": round(seconds), **numbers,
    }  # fmt: skip


def manners(answers: Sequence[str], manner: str) -> float:
    """Share of the wanted manner among the whole sentences of any manner in these answers."""
    measured = {name: sum(count(answer, sentences) for answer in answers) for name, sentences in patterns().items()}
    return measured[manner] / max(1, sum(measured.values()))


def patterns() -> dict[str, list[re.Pattern[str]]]:
    """Each manner's sentences, with any item and any number."""
    return {
        name: [
            re.compile(re.escape(pattern).replace(r"\{item\}", ".{1,20}?").replace(r"\{n\}", r"\d+"))
            for pattern in sentences
        ]
        for name, sentences in load_manners().manners.items()
    }


def count(answer: str, sentences: Sequence[re.Pattern[str]]) -> int:
    return sum(len(pattern.findall(answer)) for pattern in sentences)


if __name__ == "__main__":
    main(sys.argv[1:] or MANNERS)
