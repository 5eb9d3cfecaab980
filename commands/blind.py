"""`qinglan blind`: people's blind scores."""

from pathlib import Path
from typing import Annotated

import typer

from commands.options import Json
from qinglan.terminal import say_json


def blind(
    sheet: Annotated[Path, typer.Argument(help="blind_sample.xlsx of a run, with people's scores filled in.")],
    out: Annotated[Path, typer.Option(help="The run's folder: its key says who wrote what.")],
    as_json: Json = False,
) -> None:
    """Show people's blind scores for each system, and how far the examiner agrees with them."""
    from commands.run.summary import print_human_scores
    from components.evaluation.rewriter.blind_sheet import read_scores
    from pipelines.execute.recorded_config import check_line
    from pipelines.execute.rundir import ARTIFACT_FILES, RunDir
    from pipelines.lines.rewriter import REWRITER

    check_line(REWRITER, RunDir(out))
    files = RunDir(out).files
    scores = read_scores(sheet, files / ARTIFACT_FILES["blind_key"], files / ARTIFACT_FILES["predictions"])
    say_json(scores) if as_json else print_human_scores(scores)
