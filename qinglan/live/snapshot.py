"""Snapshot of a training: the contents of its page, as plain data that a gateway can check and store."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from qinglan.config import Config, Name

TRAININGS_PATH = "/v1/trainings"
"""Path at a gateway: POST sends a snapshot, GET lists all snapshots."""

POINTS = 400
"""Highest number of points in a curve; a chart has not enough pixels to show more."""

LOG_LINES, LOG_WIDTH = 40, 400
LONGEST = 2000
"""Longest message of an alarm, in characters."""

MOST_FIGURES, MOST_CURVES, MOST_ALARMS = 96, 6, 20

Run = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
"""Id of a run, which is safe in a path, a URL and a Prometheus label."""

FIGURE_NAME = r"^[A-Za-z0-9_./@-]{1,64}$"
Label = Annotated[str, Field(max_length=40)]
Points = Annotated[list[tuple[FiniteFloat, FiniteFloat]], Field(max_length=POINTS)]
Text = Annotated[str, Field(max_length=LONGEST)]


StepNumber = Annotated[int, Field(ge=0, le=10**12)]
"""Type of a step or a number of steps. Its limit keeps a value exact as a float, the number type of Prometheus."""

Moment = Annotated[float, Field(ge=0, le=253_402_300_799)]
"""Seconds since 1970, up to the end of year 9999, the last year of a Python date."""


class AlarmNote(Config):
    """Alarm as the page shows it, with the newest step at which it was raised."""

    name: Name
    level: Literal["warn", "stop"]
    message: Text
    step: StepNumber


class TrainingSnapshot(Config):
    """State of a training at one moment."""

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
    """Total number of steps; 0 if it is not known yet."""

    seconds_left: FiniteFloat | None
    figures: Annotated[dict[Annotated[str, Field(pattern=FIGURE_NAME)], FiniteFloat], Field(max_length=MOST_FIGURES)]
    """Newest value of each metric."""

    curves: Annotated[dict[Label, Points], Field(max_length=MOST_CURVES)]
    alarms: Annotated[list[AlarmNote], Field(max_length=MOST_ALARMS)]
    log: Annotated[list[Annotated[str, Field(max_length=LOG_WIDTH)]], Field(max_length=LOG_LINES)]

    @property
    def share(self) -> float:
        """Share of the training's steps that are done; 0 if the total is not known yet."""
        return min(1.0, self.step / self.total) if self.total else 0.0


def newest_figures(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the newest value of each metric. NaN and infinity are left out, because alarms report them."""
    figures: dict[str, float] = {}
    for row in rows:
        figures |= row
    figures.pop("step", None)
    shown = {name: value for name, value in figures.items() if math.isfinite(value) and re.match(FIGURE_NAME, name)}
    return dict([*shown.items()][:MOST_FIGURES])


def curve_points(rows: Sequence[Mapping[str, float]], name: str) -> list[tuple[float, float]]:
    """Return the points (step, value) of a metric. Above POINTS they are thinned evenly, and the newest point is
    kept."""
    points = [(row["step"], row[name]) for row in rows if math.isfinite(row.get(name, math.nan))]
    every = math.ceil(len(points) / POINTS) or 1
    return points[::-every][::-1]


def seconds_left(first: tuple[float, float], now: tuple[float, float], total: int) -> float | None:
    """Estimate the seconds until the last step from the pace between `first` and `now`, both (step, time).

    None if no step was done between them, or if the total number of steps is not known.
    """
    steps, seconds = now[0] - first[0], now[1] - first[1]
    return (total - now[0]) * seconds / steps if steps > 0 and seconds > 0 and total >= now[0] else None
