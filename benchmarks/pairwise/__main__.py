"""python -m benchmarks.pairwise [RUN ...]: what stands in best for the paid judge where it was not asked?

In PPO most prompts' judge scores are a regression's. The other way is a small pairwise judge, trained by TRL from the
SFT model on what the paid judge decided. Both learn from the judged rollouts of seven conversations in ten of a run's
folder and are compared with the judge on the others': at mid-run, knowing the first half and asked about the second,
as a training would have to use them; and with hindsight, knowing all of the run. Without a folder: the demo's run.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.pairwise.contenders import CONTENDERS
from benchmarks.pairwise.judged import Cut, cuts, read_rolled
from benchmarks.pairwise.standing import ContenderScores, Standing, pooled, score_contenders, standing
from benchmarks.report import report
from qinglan.errors import QinglanError
from qinglan.evaluation.statistics import Estimate

DEMO = "runs/demo/fivedoctors"
STRAIGHT, BENT, PAIRWISE = CONTENDERS
DUELS = ((BENT, PAIRWISE), (BENT, STRAIGHT))
DECIDES = "mid-run"
TARGET = 1.0

Spent = dict[str, float]
"""CPU seconds of each contender, to learn and to say; who needs torch first pays for its import."""


def main(runs: Sequence[Path]) -> None:
    spent: dict[str, Spent] = {}
    held: list[dict[str, ContenderScores]] = []
    for run, rolled in [(run, read_rolled(run)) for run in runs]:
        held.append(
            {name: ask_contenders(run, cut, spent.setdefault(name, {})) for name, cut in cuts(rolled).items()}
        )
        now = {name: standing(held[-1][DECIDES], name).correlation.value for name in CONTENDERS}
        print(f"{run}, {DECIDES}: " + ", ".join(f"{name} {value:.3f}" for name, value in now.items()), flush=True)
    by_learned = {name: standings(pooled([run[name] for run in held])) for name in held[0]}
    Console(width=118).print(table(by_learned, spent))
    ratio = by_learned[DECIDES][BENT].correlation.value / by_learned[DECIDES][PAIRWISE].correlation.value
    report(
        "pairwise", ratio, TARGET, ratio >= TARGET, runs=len(held), cpu_seconds=spent,
        **{name: {who: {"pairs_right": rounded(entry.right), "correlation": rounded(entry.correlation)}
                  for who, entry in rows.items()} for name, rows in by_learned.items()},
    )  # fmt: skip


def ask_contenders(run: Path, cut: Cut, spent: Spent) -> ContenderScores:
    """Scores of every contender for the rollouts asked about."""
    texts = list(dict.fromkeys(text for some in cut for entry in some for text in entry))
    scores = {}
    for name, contender in CONTENDERS.items():
        started = time.process_time()
        scores[name] = dict(zip(texts, contender(run, cut.known, texts), strict=True))
        spent[name] = round(spent.get(name, 0.0) + time.process_time() - started, 2)
    return score_contenders(cut, scores)


def standings(held: ContenderScores) -> dict[str, Standing]:
    """Each contender's, then each duel's."""
    alone = {name: standing(held, name) for name in CONTENDERS}
    return alone | {f"{entry} − {other}": standing(held, entry, other) for entry, other in DUELS}


def table(by_learned: Mapping[str, Mapping[str, Standing]], spent: Mapping[str, Spent]) -> Table:
    out = Table("learned", "stands in", "pairs put right", "correlation", "CPU s")
    for name, rows in by_learned.items():
        for who, entry in rows.items():
            out.add_row(name, who, cell(entry.right), cell(entry.correlation), str(spent[name].get(who, "")))
        out.add_section()
    return out


def cell(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def rounded(estimate: Estimate) -> list[float]:
    """Value and interval."""
    return [round(figure, 3) for figure in estimate[:3]]


if __name__ == "__main__":
    try:
        main([Path(name) for name in sys.argv[1:] or [DEMO]])
    except QinglanError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
