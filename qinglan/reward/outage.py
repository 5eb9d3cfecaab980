"""How a reward worker stops a training that may swallow its errors: a file in the training's folder.

The stage clears it before it starts, watches for it, ends the training when it is there, and raises what it says.
"""

from pathlib import Path

import orjson

from qinglan.errors import QinglanError, error_of
from qinglan.files import replaced

NAME = "outage.json"


def write_outage(folder: Path, error: QinglanError, row: str) -> None:
    """Say why no reward can be given; the first word stands."""
    if (folder / NAME).exists():
        return
    said = {"error": type(error).__name__, "exit_code": error.exit_code, "message": str(error), "row": row}
    with replaced(folder / NAME) as partial:
        partial.write_bytes(orjson.dumps(said, option=orjson.OPT_INDENT_2))


def read_outage(folder: Path) -> QinglanError | None:
    """The error that stopped the reward workers, ready to raise; None while all is well."""
    try:
        said = orjson.loads((folder / NAME).read_bytes())
    except FileNotFoundError:
        return None
    return error_of(said["exit_code"])(said["message"])


def clear_outage(folder: Path) -> None:
    """Before a training starts, or goes on."""
    (folder / NAME).unlink(missing_ok=True)
