"""`qinglan why`: the history of one row."""

from pathlib import Path
from typing import Annotated

import typer

from commands.options import Json
from qinglan.terminal import say, say_json


def why(
    row_id: Annotated[str, typer.Argument(help="A row's id; row-N for row N of a sheet without ids.")],
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    as_json: Json = False,
) -> None:
    """Tell what became of one row of a run at each stage, and why, with the figures."""
    from commands.why.history import note_lines, row_history
    from pipelines.execute.rundir import RunDir

    notes = row_history(RunDir(run), row_id)
    if as_json:
        say_json([note._asdict() for note in notes])
    else:
        say(*(line for note in notes for line in note_lines(note)))
