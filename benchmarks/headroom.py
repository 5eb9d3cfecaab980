"""make bench-headroom: what `qinglan headroom` predicts and what PPO then gains, by whole runs in many worlds.

Both sample tenants in each variant of standins/samples/README.md, gold in the sheet, the demo's recipe; the plain
worlds are the samples of `make bench-science`, in the same folder. Predicted: best of 8 samples of the SFT model
minus its greedy rewrite, on dev. Realised: RL minus SFT on the locked test. About ten CPU minutes a world. The page
is docs/science.worlds.md; the last line is JSON: Spearman's rank correlation of the two over the worlds.

    python -m benchmarks.headroom [FOLDER] [TENANT-SEED-VARIANT ...]     some worlds; it goes on where it stopped
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks.report import report
from benchmarks.science import runs
from benchmarks.science.__main__ import SEEDS, TENANTS
from benchmarks.science.table import interval, least_kind, revision, write_table
from commands.headroom.report import headroom_report
from pipelines.execute.rundir import RunDir
from qinglan.evaluation.headroom import ALL
from qinglan.evaluation.statistics import agreement
from qinglan.files.files import atomic_write
from standins.samples.tenant_content import VARIANTS

SAMPLES, ROWS, TARGET = 8, 512, 0.8
PLAIN = "plain"
WORLDS = [f"{tenant}-{seed}-{PLAIN}" for seed in SEEDS for tenant in TENANTS] + [
    f"{tenant}-{SEEDS[0]}-{variant}" for variant in VARIANTS if variant != PLAIN for tenant in TENANTS
]
PREDICTION, PAGE = "headroom.json", Path(__file__).parents[1] / "docs" / "science.worlds.md"
COLUMNS = (
    "world", "n", "teacher", "SFT", "RL", "RL - teacher, 95 %", "RL - SFT", "predicted: best of 8 - greedy, dev",
    "advice", "gate", "kind with the least gain", "code",
)  # fmt: skip


class World(NamedTuple):
    """A whole run in one world, and what was predicted after its SFT."""

    name: str
    prediction: dict[str, Any]
    """As `qinglan headroom --json` prints it."""

    evaluation: dict[str, Any]


def main(folder: Path, names: list[str]) -> None:
    for name in names:
        world = run_world(folder, name)
        print(table_row(world), flush=True)
    worlds = [read_world(folder, name) for name in WORLDS if (world_folder(folder, name) / PREDICTION).exists()]
    ranks = rank_correlation(worlds)
    write_page(PAGE, worlds, ranks)
    report("headroom", ranks, TARGET, ranks >= TARGET, worlds=len(worlds))


def world_folder(folder: Path, name: str) -> Path:
    """A plain world is a sample of bench-science."""
    return folder / name.removesuffix(f"-{PLAIN}")


def run_world(folder: Path, name: str) -> World:
    """Run the whole line in a world, then predict from its SFT model; what was done before is not done again."""
    root = world_folder(folder, name)
    tenant, seed, variant = name.split("-", 2)
    data = runs.sample(tenant, int(seed), root, variant)
    runs.thread(runs.settings(tenant, data), root / "gold-yes")
    if not (root / PREDICTION).exists():
        predicted = headroom_report(RunDir(root / "gold-yes"), SAMPLES, ROWS).as_json()
        with atomic_write(root / PREDICTION) as partial:
            partial.write_bytes(orjson.dumps(predicted))
    return read_world(folder, name)


def read_world(folder: Path, name: str) -> World:
    root = world_folder(folder, name)
    evaluation = orjson.loads((root / "gold-yes" / "files" / "evaluation.json").read_bytes())
    return World(name, orjson.loads((root / PREDICTION).read_bytes()), evaluation)


def table_row(world: World) -> str:
    systems, paired = world.evaluation["systems"], world.evaluation["paired"]
    kind, gain = least_kind(world.evaluation)
    predicted = world.prediction["by_kind"][ALL]["gain"]
    cells = [
        world.name,
        str(paired["rl_vs_teacher"]["n"]),
        *(f"{systems[entry]['top1']['value']:.3f}" for entry in ("teacher", "sft", "rl")),
        interval(paired["rl_vs_teacher"]),
        interval(paired["rl_vs_sft"]),
        interval({**predicted, "difference": predicted["value"]}),
        world.prediction["decision"]["word"],
        world.evaluation["verdict"]["word"],
        f"{kind}, {gain:+.3f}",
        revision(world.evaluation["digests"]["code"]),
    ]
    return f"| {' | '.join(cells)} |"


def rank_correlation(worlds: list[World]) -> float:
    """Spearman's, of predicted and realised gain over the worlds."""
    predicted = [world.prediction["by_kind"][ALL]["gain"]["value"] for world in worlds]
    return agreement(predicted, [world.evaluation["paired"]["rl_vs_sft"]["difference"] for world in worlds]).spearman


def write_page(path: Path, worlds: list[World], ranks: float) -> None:
    about = (
        "Written by `make bench-headroom` ([science.md](science.md)); what each world",
        "makes harder is in [its README](../standins/samples/README.md#harder-worlds). Shares of locked questions",
        "with the gold passage first, gold in the sheet; differences are RL's minus the other's, intervals of 95 %",
        "over conversations.",
        f"Spearman's rank correlation of predicted gain and RL - SFT over these {len(worlds)} worlds: {ranks:+.2f}.",
    )
    write_table(path, "Plain and harder worlds by whole runs", about, COLUMNS, [*map(table_row, worlds)])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/science"), sys.argv[2:] or WORLDS)
