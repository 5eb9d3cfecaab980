"""Gain of a training stage on dev rows, which decides whether the run continues with the trained model.

    write_gain(log, StageGain(rows=512, measure="right passage first", before=0.69, after=0.88, taken=True))
    read_gain(log)   # None if the stage compared nothing

The file is in the stage's log folder.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import orjson

from qinglan.config import Config
from qinglan.documents import parse_json_mapping
from qinglan.files.files import atomic_write

GAIN_FILE = "stage_gain.json"
Measure = Literal["right passage first", "mean reward"]


class StageGain(Config):
    """Best result of a training stage on dev rows, and the result of the model before the stage."""

    rows: int
    """Number of dev rows that were compared."""

    measure: Measure
    """Name of the figure whose means are in `before` and `after`."""

    before: float
    after: float
    unrewritten: float | None = None
    """Mean of the figure for the original questions, without a rewrite; None if it was not measured."""

    interval: tuple[float, float] | None = None
    """Lower and upper end of the gain's 95 % interval, over conversations; None if it was not computed."""

    taken: bool
    """False if the run continues with the model from before the stage."""

    @property
    def gain(self) -> float:
        return self.after - self.before

    @property
    def of_taken(self) -> float:
        """Return the figure of the model with which the run continues."""
        return self.after if self.taken else self.before


def write_gain(log: Path, gain: StageGain) -> None:
    with atomic_write(log / GAIN_FILE) as partial:
        partial.write_bytes(orjson.dumps(gain.model_dump(mode="json"), option=orjson.OPT_INDENT_2))


def read_gain(log: Path) -> StageGain | None:
    path = log / GAIN_FILE
    if not path.is_file():
        return None
    return StageGain.parse(parse_json_mapping(path.read_bytes(), str(path)), str(path))


def read_gains(logs: Mapping[str, Path]) -> dict[str, StageGain]:
    return {name: gain for name, folder in logs.items() if (gain := read_gain(folder))}
