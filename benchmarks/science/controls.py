"""python -m benchmarks.science.controls [FOLDER]: other explanations of the gain in the first run.

In RL's column stands the control's model. It goes on where it stopped, and begins with that run where it is missing.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.science import runs
from benchmarks.science.__main__ import SEEDS, TENANTS
from benchmarks.science.best_of_samples import best_of_samples
from benchmarks.science.table import table_row, write_page

RESULTS = Path(__file__).parents[2] / "docs" / "science.controls.md"
TITLE = "What else could explain the gain"


def main(folder: Path) -> None:
    tenant, root = TENANTS[0], folder / f"{TENANTS[0]}-{SEEDS[0]}"
    lines: list[str] = []
    for name, gold, evaluation in controls(tenant, root):
        lines.append(table_row(f"{tenant}: {name}", gold, evaluation))
        print(lines[-1], flush=True)
    write_page(RESULTS, TITLE, "python -m benchmarks.science.controls", lines)


def controls(tenant: str, root: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    data = runs.sample(tenant, SEEDS[0], root)
    config, run = runs.settings(tenant, data), root / "gold-yes"
    runs.thread(config, run)
    for name, train in {
        "shuffled rewards": runs.shuffled_rewards,
        "SFT on the best of 8 samples": best_of_samples,
        "SFT, twice the epochs": runs.longer_sft,
    }.items():
        out = root / name.replace(" ", "-").replace(",", "")
        yield name, "yes", runs.judged(config, run, train(config, run, out), out)
    runs.without_gold(data)
    blind = runs.thread(runs.settings(tenant, data, runs.WITHOUT_GOLD), root / "no-gold-no-labels")
    yield "no gold, no labels", "no", blind


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/science"))
