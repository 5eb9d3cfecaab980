"""File with which a reward worker stops a training, because a trainer may ignore errors of single samples.

The stage deletes an old file before it starts. If the file appears, the stage ends the training and raises its error.
"""

from pathlib import Path

import orjson

from qinglan.errors import QinglanError, error_class_for
from qinglan.files.files import atomic_write

OUTAGE_FILE = "outage.json"


def write_outage(folder: Path, error: QinglanError, row: str) -> None:
    """Write to the outage file which error makes rewards impossible; an existing file is kept."""
    if (folder / OUTAGE_FILE).exists():
        return
    outage = {"error": type(error).__name__, "exit_code": error.exit_code, "message": str(error), "row": row}
    # Two workers that fail at once both write: each a whole file, of which the later rename stays.
    with atomic_write(folder / OUTAGE_FILE) as partial:
        partial.write_bytes(orjson.dumps(outage, option=orjson.OPT_INDENT_2))


def read_outage(folder: Path) -> QinglanError | None:
    """Read the error that stopped the reward workers, ready to raise; None without an outage."""
    try:
        outage = orjson.loads((folder / OUTAGE_FILE).read_bytes())
    except FileNotFoundError:
        return None
    return error_class_for(outage["exit_code"])(outage["message"])


def clear_outage(folder: Path) -> None:
    (folder / OUTAGE_FILE).unlink(missing_ok=True)
