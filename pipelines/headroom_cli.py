"""The command `qinglan headroom`."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qinglan.terminal import say, say_json

if TYPE_CHECKING:
    from pipelines.headroom import HeadroomReport, Recipe
    from qinglan.evaluation.headroom import Headroom
    from qinglan.evaluation.statistics import Estimate


def headroom(
    run: Annotated[Path, typer.Argument(help="The run's folder, as far as convert or, better, sft.")],
    samples: Annotated[int, typer.Option(min=2, max=64, help="Rewrites that are sampled for each dev row.")] = 8,
    rows: Annotated[int, typer.Option(min=8, help="Dev rows at most, as whole conversations.")] = 512,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")] = False,
) -> None:
    """Tell before PPO is paid for what it could gain: best of k samples on dev by kind of question, and the cost.

    No model is paid; the run's RAG service is asked. "Not worth it" is an answer.
    """
    from pipelines.headroom import headroom_report
    from pipelines.rundir import RunDir

    with redirect_stdout(sys.stderr):  # the progress: on stdout is the result alone
        report = headroom_report(RunDir(run), samples, rows)
    if as_json:
        say_json(report.as_json())
    else:
        say(*report_lines(report))


def report_lines(report: "HeadroomReport") -> Iterator[str]:
    """The report as lines of text."""
    best = f"best of {report.samples}" if report.samples else "best of 2"
    model = "sft" if report.samples else "teacher"
    yield f"{report.run}: share of dev rows with a gold passage first, 95 % intervals over conversations"
    if report.labelled:
        yield f"! {report.labelled:,} rows have labels by judges in place of gold: gold is judged there."
    yield from table_lines(report.by_kind, [f"{model} greedy", "one sample", best, "gain", "unreached"])
    yield ""
    for recipe in report.recipes:
        yield f"{recipe.name}: {recipe.about}; {gain_in_words(recipe)}; {cost_in_words(recipe, report.currency)}"
    yield ""
    yield f"{report.decision.word}: {report.decision.sentence}"
    yield "The best of the samples is a stop sign, no promise: docs/science.md, `Where it stops`."


def table_lines(by_kind: "Mapping[str, Headroom]", names: Sequence[str]) -> Iterator[str]:
    """A line of each kind of question, under the names of the columns."""
    yield f"{'kind':<18}{'rows':>6}{'teacher':>9}{names[0]:>16}" + "".join(
        f"{name:>{width}}" for name, width in zip(names[1:], (12, 11, 26, 11), strict=True)
    )
    for kind, each in by_kind.items():
        yield (
            f"{kind:<18}{each.rows:>6}{each.teacher.value:>9.3f}{each.greedy.value:>16.3f}{each.sampled.value:>12.3f}"
            f"{each.best.value:>11.3f}{with_interval(each.gain):>26}{each.unreached.value:>11.3f}"
        )


def with_interval(estimate: "Estimate") -> str:
    return f"{estimate.value:+.3f} [{estimate.low:+.3f}, {estimate.high:+.3f}]"


def gain_in_words(recipe: "Recipe") -> str:
    return f"gain {with_interval(recipe.gain)}" if recipe.gain else "gain not measured"


def cost_in_words(recipe: "Recipe", currency: str) -> str:
    """Time and price, and where they come from."""
    if recipe.seconds is None:
        return "time not known: hours on a CPU, or of an unknown model or card, are not estimated"
    time = f"{recipe.seconds:,.0f} s" if recipe.seconds < 7200 else f"{recipe.seconds / 3600:.1f} h"
    price = f", {recipe.cost:,.2f} {currency} of cards" if recipe.cost is not None else ""
    return f"{time}{price} ({recipe.basis})"
