"""Remedies for rare labels, compared: the same answers with two labels cut down, trained in four ways, asked on dev.

Dev stays as it was. A seed decides which rows are cut and how the model begins, for all four alike. Oversampling and
augmentation show more rows, and so take more steps.
"""

import random
import shutil
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.report import report
from benchmarks.style.material import Material, aside, make
from components.training.style.config import StyleConfig
from components.training.style.stage import train_style
from qinglan.files.files import dump_line
from qinglan.style.labels import format_training_text
from qinglan.style.model import StyleModel
from qinglan.style.rows import StyleRow
from standins.samples.style import load_manners

ROWS = 3000
DEV = 0.3
"""A rare label's F1 on a tenth of the rows would be chance."""

SHARES = {"售后": 12, "诚实": 6}
"""One row in so many."""

SEEDS = (1, 2, 3)
WAYS = ("none", "weights", "sampling", "augmented")
ANSWER = "\n回答："


class Outcome(NamedTuple):
    """One training's F1 on dev."""

    macro: float
    rare: dict[str, float]
    steps: int


def main(folder: Path, console: Console) -> None:
    material = make(folder, ROWS, dev=DEV, test=0.1)
    outcomes: dict[str, list[Outcome]] = {remedy: [] for remedy in WAYS}
    for seed in SEEDS:
        for remedy in WAYS:
            outcomes[remedy].append(train_one(material, remedy, seed))
            console.print(f"seed {seed}, {remedy}: macro-F1 {outcomes[remedy][-1].macro:.3f}", highlight=False)
    console.print(table(outcomes))
    means = {remedy: statistics.mean(outcome.macro for outcome in outcomes[remedy]) for remedy in WAYS}
    report(
        "style-imbalance", means["weights"] / means["none"], 1.0,
        all(a.macro > plain.macro for a, plain in zip(outcomes["weights"], outcomes["none"], strict=True)),
        dev_rows=len(material.split("dev")),
        found={remedy: [outcome._asdict() for outcome in outcomes[remedy]] for remedy in WAYS},
    )  # fmt: skip


def train_one(material: Material, remedy: str, seed: int) -> Outcome:
    """Train with the rare labels cut; nothing but train.jsonl differs from what was prepared."""
    place = material.folder / f"{remedy}-{seed}"
    shutil.copytree(material.rows, place / "rows")
    rows = cut(material.split("train"), SHARES, seed)
    if remedy == "augmented":
        rows = augmented(rows, seed)
    (place / "rows" / "train.jsonl").write_bytes(b"".join(map(dump_line, rows)))
    with aside():
        counts = train_style(
            material.base, place / "rows", place / "model", place / "log", settings(material, remedy, seed)
        )
    macro, by_label = f1(StyleModel.load(place / "model"), material.split("dev"))
    return Outcome(round(macro, 4), {name: round(by_label[name], 4) for name in SHARES}, counts.steps)


def settings(material: Material, remedy: str, seed: int) -> StyleConfig:
    balance = "none" if remedy == "augmented" else remedy
    return StyleConfig.parse(material.config.style.model_dump() | {"balance": balance, "seed": seed}, remedy)


def cut(rows: Sequence[StyleRow], shares: dict[str, int], seed: int) -> list[StyleRow]:
    """A seeded share of the labels named, and all of the others."""
    rng = random.Random(f"cut-{seed}")
    counts = Counter(row.label for row in rows)
    chosen = {row.id for name, times in shares.items() for row in drawn(rows, name, counts[name] // times, rng)}
    return [row for row in rows if row.label not in shares or row.id in chosen]


def drawn(rows: Sequence[StyleRow], label: str, count: int, rng: random.Random) -> list[StyleRow]:
    return rng.sample([row for row in rows if row.label == label], count)


def augmented(rows: Sequence[StyleRow], seed: int) -> list[StyleRow]:
    """Rare labels as often as any: their answers, begun and ended otherwise, to their other questions."""
    rng = random.Random(f"augmented-{seed}")
    counts = Counter(row.label for row in rows)
    more = []
    for name in SHARES:
        labelled = [row.input.removeprefix("用户问题：").partition(ANSWER) for row in rows if row.label == name]
        for number in range(max(counts.values()) - counts[name]):
            text = format_training_text(rng.choice(labelled)[0], reworded(rng.choice(labelled)[2], rng))
            more.append(StyleRow(id=f"{name}-{number}", input=text, label=name))
    return [*rows, *more]


def reworded(answer: str, rng: random.Random) -> str:
    """The same said between another opening and another closing; both are the sample's, and of no manner."""
    data = load_manners()
    opening = longest(data.openings, answer.startswith)
    closing = longest(data.closings, answer.endswith)
    inner = answer.removeprefix(opening).removesuffix(closing)
    return f"{rng.choice(data.openings)}{inner}{rng.choice(data.closings)}"


def longest(candidates: Sequence[str], fits: Callable[[str], bool]) -> str:
    return max(filter(fits, candidates), key=len, default="")


def f1(model: StyleModel, rows: Sequence[StyleRow]) -> tuple[float, dict[str, float]]:
    """Macro, and of each label."""
    from sklearn.metrics import f1_score

    best = model.probabilities([row.input for row in rows]).argmax(-1)
    true = [model.labels.ids[row.label] for row in rows]
    each = f1_score(true, best, average=None, labels=list(range(len(model.labels.names))), zero_division=0)
    return float(each.mean()), dict(zip(model.labels.names, map(float, each), strict=True))


def table(outcomes: dict[str, list[Outcome]]) -> Table:
    shares = ", ".join(f"{name} 1 in {times}" for name, times in SHARES.items())
    out = Table("", "macro-F1", *(f"F1 {name}" for name in SHARES), "steps", title=f"F1 on dev, {shares} in training")
    for remedy, runs in outcomes.items():
        rare = [spread([outcome.rare[name] for outcome in runs]) for name in SHARES]
        out.add_row(remedy, spread([outcome.macro for outcome in runs]), *rare, str(runs[0].steps))
    return out


def spread(values: Sequence[Any]) -> str:
    """Mean, and from the lowest to the highest."""
    return f"{statistics.mean(values):.3f} [{min(values):.3f}, {max(values):.3f}]"
