"""The command `qinglan headroom`."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from commands.options import Json
from qinglan.terminal import in_language, say, say_json

if TYPE_CHECKING:
    from commands.headroom.report import HeadroomReport
    from qinglan.evaluation.headroom import Headroom

GAP = "  "


def headroom(
    run: Annotated[Path, typer.Argument(help="The run's folder, as far as convert or, better, sft.")],
    samples: Annotated[int, typer.Option(min=2, max=64, help="Rewrites that are sampled for each dev row.")] = 8,
    rows: Annotated[int, typer.Option(min=8, help="Dev rows at most, as whole conversations.")] = 512,
    as_json: Json = False,
) -> None:
    """Tell before PPO is paid for what it could gain: best of k samples on dev by kind of question, and the cost.

    No model is paid; the run's RAG service is asked. "Not worth it" is an answer.
    """
    from commands.headroom.report import headroom_report
    from pipelines.execute.rundir import RunDir

    with redirect_stdout(sys.stderr):  # progress goes to stderr, and only the result to stdout
        report = headroom_report(RunDir(run), samples, rows)
    if as_json:
        say_json(report.as_json())
    else:
        say(*report_lines(report))


def report_lines(report: "HeadroomReport") -> Iterator[str]:
    from commands.run.gains import cost_in_words, gain_in_words, worth_in_words

    best = f"best of {report.samples}" if report.samples else "best of 2"
    greedy = "sft greedy" if report.samples else "teacher greedy"
    yield f"{report.run}: share of dev rows with a gold passage first, 95 % intervals over conversations"
    if report.labelled:
        yield f"! {report.labelled:,} rows have labels by judges in place of gold: gold is judged there."
    yield from table_lines(report.by_kind, [greedy, "one sample", best, "gain", "unreached"])
    yield ""
    for recipe in report.recipes:
        yield f"{recipe.name}: {recipe.about}; {gain_in_words(recipe)}; {cost_in_words(recipe, report.currency)}"
        if recipe.brought is not None:
            yield f"{GAP}{worth_in_words(recipe)}"
    yield ""
    yield f"{report.decision.word}: {report.decision.sentence}"
    yield "The best of the samples is a stop sign, no promise: docs/science.md."


def table_lines(by_kind: "Mapping[str, Headroom]", names: Sequence[str]) -> Iterator[str]:
    """Format the table: the names of the columns, then a line for each kind of question. Each column is as wide as
    its widest cell."""
    from rich.cells import cell_len, set_cell_size

    from commands.run.gains import with_interval

    rows = [["kind", "rows", "teacher", *names]]
    for kind, each in by_kind.items():
        shares = (f"{share.value:.3f}" for share in (each.teacher, each.greedy, each.sampled, each.best))
        rows.append([kind, str(each.rows), *shares, with_interval(each.gain), f"{each.unreached.value:.3f}"])
    rows = [[in_language(cell) for cell in row] for row in rows]
    first, *widths = (max(map(cell_len, column)) for column in zip(*rows, strict=True))
    for kind, *cells in rows:
        padded = (f"{' ' * (width - cell_len(cell))}{cell}" for cell, width in zip(cells, widths, strict=True))
        yield GAP.join([set_cell_size(kind, first), *padded])
