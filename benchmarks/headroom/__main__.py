"""make bench-headroom: what `qinglan headroom` predicts, and what training by rewards then gains, in sixteen worlds.

Both sample tenants, plain and in each harder variant (standins/samples/README.md), small: a tiny base model from the
knowledge base, SFT on the stand-in teacher's rewrites, 30 steps of RLOO on the reward's retrieval part. Predicted:
best of 8 samples of the SFT model minus its greedy rewrite, on dev. Realised: RL minus SFT, greedy, on the held-out
test. The last line is JSON: Spearman's rank correlation of the two over the worlds.

    python -m benchmarks.headroom [FOLDER] [TENANT/VARIANT ...]     some worlds; it goes on where it stopped
"""

import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from benchmarks.headroom.train import SEED, Policy, rloo, sft
from benchmarks.headroom.world import Row, World
from benchmarks.report import report
from components.training.base.config import BaseConfig, TinyConfig
from components.training.base.stage import base
from pipelines.headroom_cli import with_interval
from qinglan.evaluation.headroom import ALL, Headroom, RowOutcome, decide, measure_headroom
from qinglan.evaluation.statistics import Estimate, agreement, bootstrap_means, group_numbers
from qinglan.files import atomic_write
from qinglan.prompts import student_messages
from qinglan.terminal import say
from standins.samples import TENANTS
from standins.samples.sample_writer import KNOWLEDGE_BASE
from standins.samples.tenant_content import VARIANTS

SAMPLES, WORTH, DRAWS, TARGET = 8, 0.03, 2_000, 0.8
BASE = TinyConfig(hidden=96, layers=2, heads=3, steps=200)
"""A model of half the demo's parameters, in fewer steps: sixteen worlds take an hour at most."""

WORLDS = [f"{tenant}/{variant}" for variant in VARIANTS for tenant in TENANTS]
RESULT, SYSTEMS = "result.json", ("teacher", "sft", "rl")


def main(folder: Path, names: list[str]) -> None:
    for name in names:
        if not (path := folder / name / RESULT).exists():
            tenant, variant = name.split("/")
            result = run_world(tenant, variant, folder / name)
            with atomic_write(path) as partial:
                partial.write_bytes(orjson.dumps(result))
            print(*list(table([figures(result)]))[2:], result["cpu_seconds"], sep="\n", flush=True)
    paths = [path for name in WORLDS if (path := folder / name / RESULT).exists()]
    results = [orjson.loads(path.read_bytes()) for path in paths]
    worlds = [figures(result) for result in results]
    print(*table(worlds), sep="\n")
    ranks = rank_correlation(worlds)
    minutes = sum(sum(result["cpu_seconds"].values()) for result in results) / 60
    report("headroom", ranks, TARGET, ranks >= TARGET, worlds=len(worlds), cpu_minutes=round(minutes, 1))


def run_world(tenant: str, variant: str, folder: Path) -> dict[str, Any]:
    """Train in one world and measure; times are CPU seconds."""
    clock = Clock()
    world = World(tenant, variant, folder)
    train, dev, test = (world.split(name) for name in ("train", "dev", "test"))
    clock.lap("data")
    policy = Policy(base_model(world))
    clock.lap("base")
    sft(policy, train)
    clock.lap("sft")
    before = outcomes(policy, world, dev)
    clock.lap("headroom")
    firsts = {"teacher": [world.first(row.teacher, row) for row in test], "sft": written_firsts(policy, world, test)}
    clock.lap("test")
    rloo(policy, world, train)
    clock.lap("rl")
    firsts["rl"] = written_firsts(policy, world, test)
    clock.lap("test")
    tested = [
        {"conversation": row.conversation, "kinds": row.kinds, **{name: firsts[name][at] for name in firsts}}
        for at, row in enumerate(test)
    ]
    dev_rows = [outcome._asdict() for outcome in before]
    return {"world": f"{tenant}/{variant}", "dev": dev_rows, "test": tested, "cpu_seconds": dict(clock.laps)}


class Clock:
    """CPU seconds of this process by part."""

    def __init__(self) -> None:
        self.laps: defaultdict[str, float] = defaultdict(float)
        self._last = time.process_time()

    def lap(self, part: str) -> None:
        now = time.process_time()
        self.laps[part] += round(now - self._last, 1)
        self._last = now
        say(f"[headroom] {part}: {self.laps[part]:.0f} CPU seconds", to=sys.stderr)


def base_model(world: World) -> Path:
    """The tiny base of the world's knowledge base, shared by variants of the same one; its tokenizer reads all their
    training prompts."""
    import pyarrow
    import pyarrow.parquet

    tenant_folder = world.folder.parent
    target = tenant_folder / "bases" / world.index.snapshot[:12]
    if not target.exists():
        worlds = [World(world.tenant, variant, tenant_folder / variant) for variant in VARIANTS]
        shared = [each for each in worlds if each.index.snapshot == world.index.snapshot]
        rows = [row for each in shared for row in each.questions if row.split == "train"]
        prompts = [{"data_source": f"qinglan/{world.tenant}", "prompt": student_messages(row)} for row in rows]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(prompts), world.folder / "train.parquet")
        base(world.folder / KNOWLEDGE_BASE, world.folder, target, BaseConfig(source="tiny", tiny=BASE))
    return target


def outcomes(policy: Policy, world: World, rows: list[Row]) -> list[RowOutcome]:
    greedy, samples = policy.write(rows), policy.sample(rows, SAMPLES)
    return [
        RowOutcome(
            row.conversation, row.kinds, world.first(row.teacher, row), world.first(rewrite, row),
            [world.first(text, row) for text in texts],
        )
        for row, rewrite, texts in zip(rows, greedy, samples, strict=True)
    ]  # fmt: skip


def written_firsts(policy: Policy, world: World, rows: list[Row]) -> list[float]:
    """Greedy rewrites by row: 1 where one finds a gold passage first."""
    return [world.first(rewrite, row) for row, rewrite in zip(rows, policy.write(rows), strict=True)]


class Figures(NamedTuple):
    """The figures of one world."""

    world: str
    predicted: Mapping[str, Headroom]
    """Headroom on dev, by kind of question."""

    realised: Mapping[str, Mapping[str, Estimate]]
    """Figures on test, by kind of question: each system, and RL minus SFT."""


def figures(result: Mapping[str, Any]) -> Figures:
    """A world's figures from the outcomes of its rows."""
    predicted = measure_headroom([RowOutcome(**row) for row in result["dev"]], DRAWS, SEED)
    kinds = {kind for row in result["test"] for kind in row["kinds"]}
    parts = {kind: [row for row in result["test"] if kind in row["kinds"]] for kind in sorted(kinds)}
    realised = {kind: _realised(rows) for kind, rows in ({ALL: result["test"]} | parts).items()}
    return Figures(result["world"], predicted, realised)


def _realised(rows: Sequence[Mapping[str, Any]]) -> dict[str, Estimate]:
    columns = np.array([[*(row[name] for name in SYSTEMS), row["rl"] - row["sft"]] for row in rows])
    groups = group_numbers([row["conversation"] for row in rows])
    return dict(zip((*SYSTEMS, "gain"), bootstrap_means(columns, groups, DRAWS, SEED), strict=True))


def table(worlds: Sequence[Figures]) -> Iterator[str]:
    """A line of each world, for docs/science.md."""
    yield "| variant | tenant | teacher | SFT | RL | best of 8, dev | predicted | realised | advice | gap SFT, RL |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for world in worlds:
        tenant, variant = world.world.split("/")
        before, after, gap = world.predicted[ALL], world.realised[ALL], world.realised["gap"]
        cells = [variant, tenant, *(f"{after[name].value:.3f}" for name in SYSTEMS), f"{before.best.value:.3f}"]
        cells += [with_interval(before.gain), with_interval(after["gain"]), decide(before, WORTH).word]
        cells += [", ".join(f"{gap[name].value:.2f}" for name in ("sft", "rl"))]
        yield f"| {' | '.join(cells)} |"


def rank_correlation(worlds: Sequence[Figures]) -> float:
    """Spearman's, of predicted and realised gain over the worlds."""
    predicted = [world.predicted[ALL].gain.value for world in worlds]
    return agreement(predicted, [world.realised[ALL]["gain"].value for world in worlds]).spearman


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/bench-headroom"), sys.argv[2:] or WORLDS)
