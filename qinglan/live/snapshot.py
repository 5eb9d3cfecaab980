"""A training at one moment: the contents of its page, as plain data that a gateway can check and store."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from qinglan.config import Config, Name

TRAININGS_PATH = "/v1/trainings"
"""The path of a gateway that takes a snapshot (POST) and lists them (GET)."""

POINTS = 400
"""Points of a curve: more than its width has pixels for would only make it slow."""

LOG_LINES, LOG_WIDTH = 40, 400
LONGEST = 2000
"""Letters of an alarm's message."""

MOST_FIGURES, MOST_CURVES, MOST_ALARMS = 96, 6, 20

Run = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
"""A run's id: safe in a path, a URL and a label."""

FIGURE_NAME = r"^[A-Za-z0-9_./@-]{1,64}$"
Label = Annotated[str, Field(max_length=40)]
Points = Annotated[list[tuple[FiniteFloat, FiniteFloat]], Field(max_length=POINTS)]
Text = Annotated[str, Field(max_length=LONGEST)]


StepNumber = Annotated[int, Field(ge=0, le=10**12)]
"""A step, or a number of steps: small enough for a float, as Prometheus has it."""

Moment = Annotated[float, Field(ge=0, le=253_402_300_799)]
"""Seconds since 1970, up to the year 9999: the last that a date can have."""


class AlarmNote(Config):
    """An alarm as it is shown."""

    name: Name
    level: Literal["warn", "stop"]
    message: Text
    step: StepNumber


class TrainingSnapshot(Config):
    """A training at one moment."""

    run: Run
    stage: Name
    title: Annotated[str, Field(max_length=80)]
    state: Literal["running", "done", "failed"]
    started: Moment
    stepped: Moment
    """Time of the newest step."""

    written: Moment
    step: StepNumber
    total: StepNumber
    """Steps in all, as far as is known; 0 before the first."""

    seconds_left: FiniteFloat | None
    figures: Annotated[dict[Annotated[str, Field(pattern=FIGURE_NAME)], FiniteFloat], Field(max_length=MOST_FIGURES)]
    """The newest value of each."""

    curves: Annotated[dict[Label, Points], Field(max_length=MOST_CURVES)]
    alarms: Annotated[list[AlarmNote], Field(max_length=MOST_ALARMS)]
    log: Annotated[list[Annotated[str, Field(max_length=LOG_WIDTH)]], Field(max_length=LOG_LINES)]

    @property
    def share(self) -> float:
        """The share of its steps that is done."""
        return min(1.0, self.step / self.total) if self.total else 0.0


def newest_figures(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The newest value of each figure, without NaN and infinity, which alarms report."""
    figures: dict[str, float] = {}
    for row in rows:
        figures |= row
    figures.pop("step", None)
    shown = {name: value for name, value in figures.items() if math.isfinite(value) and re.match(FIGURE_NAME, name)}
    return dict([*shown.items()][:MOST_FIGURES])


def curve_points(rows: Sequence[Mapping[str, float]], name: str) -> list[tuple[float, float]]:
    """A figure by step, thinned to the points that a picture can show, with the newest one."""
    points = [(row["step"], row[name]) for row in rows if math.isfinite(row.get(name, math.nan))]
    every = math.ceil(len(points) / POINTS) or 1
    return points[::-every][::-1]


def seconds_left(first: tuple[float, float], now: tuple[float, float], total: int) -> float | None:
    """Seconds until the last step at the pace since `first`; both points are (step, time)."""
    steps, seconds = now[0] - first[0], now[1] - first[1]
    return (total - now[0]) * seconds / steps if steps > 0 and seconds > 0 and total >= now[0] else None
