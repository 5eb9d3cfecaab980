"""How a reward worker stops a training that may swallow its errors: a file in the training's folder.

The stage clears it before it starts, watches for it, ends the training when it is there, and raises what it says.
"""

from pathlib import Path

import orjson

from qinglan.errors import QinglanError, error_class_for
from qinglan.files import atomic_write

OUTAGE_FILE = "outage.json"


def write_outage(folder: Path, error: QinglanError, row: str) -> None:
    """Say why no reward can be given; the first word stands."""
    if (folder / OUTAGE_FILE).exists():
        return
    said = {"error": type(error).__name__, "exit_code": error.exit_code, "message": str(error), "row": row}
    with atomic_write(folder / OUTAGE_FILE) as partial:
        partial.write_bytes(orjson.dumps(said, option=orjson.OPT_INDENT_2))


def read_outage(folder: Path) -> QinglanError | None:
    """The error that stopped the reward workers, ready to raise; None while all is well."""
    try:
        said = orjson.loads((folder / OUTAGE_FILE).read_bytes())
    except FileNotFoundError:
        return None
    return error_class_for(said["exit_code"])(said["message"])


def clear_outage(folder: Path) -> None:
    """Before a training starts, or goes on."""
    (folder / OUTAGE_FILE).unlink(missing_ok=True)
