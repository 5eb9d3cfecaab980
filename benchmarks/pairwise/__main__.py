"""python -m benchmarks.pairwise [RUN_FOLDER ...]: what stands in best for the paid judge where it was not asked?

In PPO most prompts' judge scores are a regression on what retrieval says of the rewrite. The other way is a small
pairwise judge, trained by TRL from the SFT model on what the paid judge decided. Both are fitted on the judged
prompts of most conversations, and compared on those of the others with the judge's own word. Each knows the fit
prompts' rollouts of the whole run, which flatters both; a regression is shown as it stood in its time, too.
"""

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.pairwise import regression
from benchmarks.pairwise.compare import HeldOut, Said, Standing, ahead, pooled, said, standings, truth
from benchmarks.pairwise.decisions import Decisions, read_decisions
from benchmarks.pairwise.model import PairwiseJudge, Words, all_words, conversation_words, retrieval_words
from benchmarks.report import report
from components.evaluation.rewriter.statistics import Estimate
from qinglan.errors import QinglanError

REGRESSION, BENT, WORDED = "regression", "regression, bent", "regression, bent, words"
TEXT, PAIRWISE, KNOWING = "pairwise, text alone", "pairwise, retrieval", "pairwise, retrieval, words"
DUELS = ((PAIRWISE, REGRESSION), (PAIRWISE, BENT), (KNOWING, WORDED))
"""Who is compared with whom: at first as it is, then each with a regression that knows the same."""

TARGET = 1.0

Contender = Callable[[Path, Decisions], Said]


def main(runs: Sequence[Path]) -> None:
    held = []
    for run in runs:
        held.append(held_out(run, read_decisions(run)))
        show(str(run), held[-1])
    whole = pooled(held)
    if len(held) > 1:
        show("all runs", whole)
    found = standings(whole)
    ratio = found[PAIRWISE].right.value / found[REGRESSION].right.value
    report(
        "pairwise", ratio, TARGET, ratio >= TARGET, runs=len(held), pairs=len(whole.pairs),
        rollouts=len(whole.rollouts), pairs_right=values({name: one.right for name, one in found.items()}),
        correlation=values({name: one.correlation for name, one in found.items()}),
        ahead={
            f"{one} − {other}": values(
                dict(zip(("pairs_right", "correlation"), ahead(whole, one, other), strict=True))
            )
            for one, other in DUELS
        },
        cpu_seconds={name: round(seconds, 2) for name, seconds in whole.seconds.items()},
    )  # fmt: skip


def held_out(run: Path, decisions: Decisions) -> HeldOut:
    """Every contender on the run's held-out prompts; whoever needs torch first pays for its import."""
    answers, seconds = {}, {}
    for name, contender in CONTENDERS.items():
        started = time.process_time()
        answers[name] = contender(run, decisions)
        seconds[name] = time.process_time() - started
    held, conversations = decisions.held_out, decisions.conversations
    rollouts = [one for one in decisions.rollouts if one.id in held]
    return HeldOut(
        [conversations[pair.id] for pair in decisions.pairs(held)], [conversations[one.id] for one in rollouts],
        [truth(one) for one in rollouts], answers, seconds,
    )  # fmt: skip


def regressed(features: regression.Features) -> Contender:
    def contender(run: Path, decisions: Decisions) -> Said:
        fit = decisions.sides.keys() - decisions.held_out
        fitted, in_time = regression.fitted(decisions, fit, features)
        return said(decisions, fit, fitted.score, in_time)

    return contender


def judged(words: Words) -> Contender:
    def contender(run: Path, decisions: Decisions) -> Said:
        fit = decisions.sides.keys() - decisions.held_out
        judge = PairwiseJudge.trained(run / "files" / "sft_model", decisions, fit, words)
        shown = {
            (id, text): words(decisions.prompts[id], text, side)
            for id, sides in decisions.sides.items()
            for text, side in sides.items()
        }
        scores = judge.scores(shown.values())
        return said(decisions, fit, lambda id, text: scores[shown[id, text]])

    return contender


CONTENDERS: Mapping[str, Contender] = {
    REGRESSION: regressed(regression.plain),
    BENT: regressed(regression.bent),
    WORDED: regressed(regression.worded),
    TEXT: judged(conversation_words),
    PAIRWISE: judged(retrieval_words),
    KNOWING: judged(all_words),
}


def show(title: str, held: HeldOut) -> None:
    table = Table(title=f"{title}: {len(held.pairs):,} pairs, {len(held.rollouts):,} rollouts", title_justify="left")
    for name in ("stands in", "pairs put right", "correlation", "in its time", "error", "CPU s"):
        table.add_column(name)
    for name, standing in standings(held).items():
        table.add_row(name, *cells(standing))
    for one, other in DUELS:
        figures = (f"{figure.value:+.3f} {ends(figure)}" for figure in ahead(held, one, other))
        table.add_row(f"{one} − {other}", *figures)
    Console(width=118).print(table)


def cells(one: Standing) -> list[str]:
    figures = [f"{estimate.value:.3f} {ends(estimate)}" for estimate in (one.right, one.correlation)]
    return [
        *figures,
        "-" if math.isnan(one.in_time) else f"{one.in_time:.3f}",
        f"{one.error:.3f}",
        f"{one.seconds:.1f}",
    ]


def ends(estimate: Estimate) -> str:
    return f"[{estimate.low:.3f}, {estimate.high:.3f}]"


def values(estimates: Mapping[str, Estimate]) -> dict[str, list[float]]:
    """Value and interval of each."""
    return {name: [round(figure, 3) for figure in estimate[:3]] for name, estimate in estimates.items()}


if __name__ == "__main__":
    try:
        main([Path(name) for name in sys.argv[1:]] or [Path("runs/demo/fivedoctors")])
    except QinglanError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
