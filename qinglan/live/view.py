"""Follow a training: keep its steps and alarms, write them to the run's folder, and send them to its gateway."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from qinglan.clock import steady_time
from qinglan.live.alarms import Alarm
from qinglan.live.follow import log_tail
from qinglan.live.outlets import Outlet, outlets
from qinglan.live.snapshot import (
    LOG_LINES,
    LOG_WIDTH,
    LONGEST,
    MOST_ALARMS,
    AlarmNote,
    TrainingSnapshot,
    curve_points,
    newest_figures,
    seconds_left,
)
from qinglan.run_id import run_id
from qinglan.terminal import say
from qinglan.terminal.progress import ShowStep, step_progress


class Part(NamedTuple):
    """One of several trainings of a stage, such as a fold, with its own files and its own part of the page."""

    name: str = ""
    """Label; empty for the only training, or for the one that is the stage's result."""

    number: int = 1
    total: int = 1

    def of(self, stage: str) -> str:
        """The stage's name with the part's, as a folder and a label have it."""
        return "-".join([stage, *re.findall("[a-z0-9]+", self.name.lower())])


WHOLE = Part()
"""The only training of a stage."""


@contextmanager
def live_training(
    stage: str,
    title: str,
    curves: Mapping[str, str],
    log: Path | None = None,
    gateway_url: str = "",
    part: Part = WHOLE,
) -> Iterator["LiveTraining"]:
    """Follow a training for as long as the block lasts; an error in it is a training that failed.

    `curves` maps a curve's label to the figure that it draws; `log` is the training's own, if it has one.
    """
    with step_progress(stage, part.total - part.number) as show:
        live = LiveTraining(part.of(stage), title, curves, log, show, outlets(stage, gateway_url), part)
        try:
            yield live
        except BaseException:
            live.end("failed")
            raise
        live.end("done")


class LiveTraining:
    """One training's steps, alarms and log."""

    def __init__(
        self,
        stage: str,
        title: str,
        curves: Mapping[str, str],
        log: Path | None,
        show: ShowStep,
        outlets: Sequence[Outlet] = (),
        part: Part = WHOLE,
    ) -> None:
        self._part = part.name or (f"training {part.number} of {part.total}" if part.total > 1 else "")
        self._stage, self._title, self._curves, self._log = stage, title, curves, log
        self._show, self._outlets = show, outlets
        self._rows: dict[int, dict[str, float]] = {}
        self._alarms: dict[str, tuple[Alarm, int]] = {}
        self._notes: list[str] = []
        self._started = self._stepped = steady_time()
        self._first: tuple[float, float] | None = None
        self._total = 0
        self._state = "running"

    @property
    def rows(self) -> list[dict[str, float]]:
        """The metrics by step, a row for each step, also if its metrics arrived at several times."""
        return [self._rows[at] for at in sorted(self._rows)]

    @property
    def stopped(self) -> Alarm | None:
        """The alarm that ends the training."""
        return next((alarm for alarm, _ in self._alarms.values() if alarm.level == "stop"), None)

    def step(self, row: Mapping[str, float], total: int, note: str = "") -> None:
        """Take a step's metrics, the number of steps in all, and a few words for a log."""
        at = int(row["step"])
        self._rows[at] = {**self._rows.get(at, {}), **row}
        self._total, self._stepped = total, steady_time()
        note = ", ".join(filter(None, [note, self._part]))
        self._show(at, total, note)
        self._notes = [*self._notes, f"step {at}/{total} {note}".rstrip()[:LOG_WIDTH]][-LOG_LINES:]

    def recall(self, rows: Iterable[Mapping[str, float]]) -> None:
        """Take the steps of an earlier attempt, which this one continues."""
        self._rows |= {int(row["step"]): dict(row) for row in rows}

    def check(self, alarms: Iterable[Alarm]) -> None:
        """Take the alarms that the steps raise so far; print a new one, or one of another level."""
        for alarm in alarms:
            before = self._alarms.get(alarm.name)
            if before is None or before[0].level != alarm.level:
                say(f"[{self._stage}] {alarm.level}: {alarm.message}")
            self._alarms[alarm.name] = alarm, max(self._rows, default=0)

    def refresh(self) -> None:
        """Write and send news, if it is time."""
        now = steady_time()
        # The first step that this process has seen: recalled steps of an earlier attempt are no pace.
        if self._first is None and self._rows:
            self._first = max(self._rows), now
        news = self._stepped, len(self._alarms), _size(self._log)
        for outlet in self._outlets:
            if outlet.due(now, news):
                outlet.write(now, news, self.snapshot(now), self.rows)

    def end(self, state: str) -> None:
        """Write and send the last state at once."""
        self._state, now = state, steady_time()
        for outlet in self._outlets:
            outlet.write(now, state, self.snapshot(now), self.rows)

    def snapshot(self, now: float) -> TrainingSnapshot:
        """The training at this moment."""
        step = max(self._rows, default=0)
        rows = self.rows
        return TrainingSnapshot(
            run=run_id(),
            stage=self._stage,
            title=self._title,
            state=self._state,
            started=self._started,
            stepped=self._stepped,
            written=now,
            step=step,
            total=max(step, self._total),
            seconds_left=seconds_left(self._first, (step, self._stepped), self._total) if self._first else None,
            figures=newest_figures(rows),
            curves={label: curve_points(rows, name) for label, name in self._curves.items()},
            alarms=[
                AlarmNote(name=alarm.name, level=alarm.level, message=alarm.message[:LONGEST], step=at)
                for alarm, at in [*self._alarms.values()][-MOST_ALARMS:]
            ],
            log=log_tail(self._log, LOG_LINES, LOG_WIDTH) if self._log else self._notes,
        )


def _size(log: Path | None) -> int:
    return log.stat().st_size if log and log.is_file() else 0
