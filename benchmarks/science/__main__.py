"""python -m benchmarks.science [FOLDER]: six runs, and controls of the first. It goes on where it stopped.

Prints a line of every run as it is done and keeps the table in the folder; at the end it is docs/science.results.md.
The last line is JSON: the smallest lower bound of RL minus teacher over the six.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.report import report
from benchmarks.science import runs
from qinglan.files import atomic_write

TENANTS = ("fivedoctors", "chengla")
SEEDS = (11, 12, 13)
"""Never run before; what was tuned looked at dev rows of seeds 100 and above."""

RESULTS = Path(__file__).parents[2] / "docs" / "science.results.md"
COLUMNS = (
    "run|n|teacher|SFT|RL|RL - teacher, 95 %|p|RL - SFT|gate|gap SFT, RL|documented SFT, RL|"
    "unseen phrasing SFT, RL (teacher)|code"
)


class Row(NamedTuple):
    """A line of the table, and what the last line needs of it."""

    text: str
    low: float
    low_enough: bool


def main(folder: Path) -> None:
    rows: list[Row] = []
    controls: list[Row] = []
    for seed in SEEDS:
        for tenant in TENANTS:
            place = folder / f"{tenant}-{seed}"
            data = runs.sample(tenant, seed, place)
            config = runs.settings(tenant, data)
            rows.append(show(row(f"{tenant} {seed}", runs.thread(config, place / "run"))))
            write(folder / "results.md", rows, controls)
    for entry in controls_of(TENANTS[0], folder / f"{TENANTS[0]}-{SEEDS[0]}"):
        controls.append(show(entry))
        write(folder / "results.md", rows, controls)
    write(RESULTS, rows, controls)
    low = min(entry.low for entry in rows)
    shown = sum(entry.low_enough for entry in rows)
    report("science", round(low, 4), 0.0, shown == len(rows), runs=len(rows), shown=shown)


def controls_of(tenant: str, place: Path) -> Iterator[Row]:
    """Name other explanations of a gain or a loss; RL's column holds the control's model."""
    data, root = place / "data", place / "run"
    config = runs.settings(tenant, data)
    figures = {
        "shuffled rewards": runs.shuffled_rewards,
        "SFT on the best rollouts": runs.best_of_rollouts,
        "SFT, twice the epochs": runs.longer_sft,
    }
    for name, make in figures.items():
        out = place / name.replace(" ", "-").replace(",", "")
        model = make(config, root, out)
        yield row(f"{tenant}: {name}", runs.judged(config, root, model, out))
    runs.without_gold(data)
    blind = runs.thread(runs.settings(tenant, data, "without_gold.xlsx"), place / "run-without-gold")
    yield row(f"{tenant}: no gold labels", blind)


def row(name: str, evaluation: dict[str, Any]) -> Row:
    paired, systems, slices = evaluation["paired"], evaluation["systems"], evaluation["slices"]
    against, over_sft = paired["rl_vs_teacher"], paired["rl_vs_sft"]
    cells = [
        name,
        str(against["n"]),
        *(f"{systems[entry]['top1']['value']:.3f}" for entry in ("teacher", "sft", "rl")),
    ]
    cells += [interval(against), f"{against['p']:.4f}", interval(over_sft), evaluation["verdict"]["word"]]
    cells += [", ".join(share(slices, part, entry) for entry in ("sft", "rl")) for part in ("gap", "documented")]
    new = ", ".join(share(slices, "new_ask", entry) for entry in ("sft", "rl"))
    cells += [f"{new} ({share(slices, 'new_ask', 'teacher')})", revision(evaluation["digests"]["code"])]
    return Row(f"| {' | '.join(cells)} |", against["low"], against["low"] > 0)


def revision(code: dict[str, Any]) -> str:
    return f"{code['revision'][:7]}{' and changes' * bool(code.get('dirty'))}"


def interval(pair: dict[str, Any]) -> str:
    return f"{pair['difference']:+.3f} [{pair['low']:+.3f}, {pair['high']:+.3f}]"


def share(slices: dict[str, Any], part: str, system: str) -> str:
    value = slices.get(part, {}).get("systems", {}).get(system, {}).get("value")
    return "-" if value is None else f"{value:.2f}"


def show(entry: Row) -> Row:
    print(entry.text, flush=True)
    return entry


def write(table: Path, rows: list[Row], controls: list[Row]) -> None:
    names = COLUMNS.split("|")
    header = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    six, beside = ([*header, *(entry.text for entry in some), ""] for some in (rows, controls))
    parts = [
        "# Six runs, and what else could explain them", "",
        "Written by `make bench-science`; what was asked, and how, is in [science.md](science.md). Shares of",
        "locked questions with the gold passage first; intervals of 95 % over conversations.", "",
        "## Figures of each run", "", *six,
        "## Beside them", "", "In RL's column stands the control's model.", "", *beside,
    ]  # fmt: skip
    with atomic_write(table) as partial:
        partial.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/science"))
