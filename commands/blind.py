"""`qinglan blind`: people's blind scores."""

from pathlib import Path
from typing import Annotated, Any

import typer

from commands.options import Json
from qinglan.terminal import say_json


def blind(
    sheet: Annotated[Path, typer.Argument(help="blind_sample.xlsx of a run, with people's scores filled in.")],
    out: Annotated[Path, typer.Option(help="The run's folder: its key says who wrote what.")],
    as_json: Json = False,
) -> None:
    """Show people's blind scores for each system, and how far the examiner agrees with them."""
    from components.evaluation.rewriter.blind_sheet import read_scores
    from pipelines.execute.recorded_config import check_line
    from pipelines.execute.rundir import ARTIFACT_FILES, RunDir
    from pipelines.lines.rewriter import REWRITER

    check_line(REWRITER, RunDir(out))
    files = RunDir(out).files
    scores = read_scores(sheet, files / ARTIFACT_FILES["blind_key"], files / ARTIFACT_FILES["predictions"])
    say_json(scores) if as_json else print_human_scores(scores)


def print_human_scores(scores: dict[str, Any]) -> None:
    """Print people's scores by system, and their agreement with the examiner."""
    from rich.table import Table

    from qinglan.terminal.console import Console

    table = Table(title="People's scores, 1 to 5", title_justify="left")
    for column in ("system", "mean", "95 %", "rewrites"):
        table.add_column(column, justify="left" if column == "system" else "right")
    for name, score in scores["systems"].items():
        table.add_row(name, f"{score['value']:.2f}", f"{score['low']:.2f} to {score['high']:.2f}", f"{score['n']:,}")
    console = Console()
    console.print(table)
    agreed = scores["agreement"]
    console.print(
        f"With the examiner on {agreed['n']:,} rewrites: rank correlation {agreed['spearman']:.2f} (Spearman), "
        f"{agreed['kendall']:.2f} (Kendall); {agreed['mean_difference']:.2f} points apart on average.",
        highlight=False,
    )
