"""Follow a training: store its steps and alarms, write them to the run's folder, and send them to its gateway."""

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
    """One of several trainings of a stage, such as one fold of a cross-validation. It has its own files and its own
    section of the page."""

    name: str = ""
    """Label of the training; empty for the stage's only training, or for the training that is the stage's result."""

    number: int = 1
    total: int = 1

    def of(self, stage: str) -> str:
        """Join the names of stage and part, for a folder and a label."""
        return "-".join([stage, *re.findall("[a-z0-9]+", self.name.lower())])


WHOLE = Part()
"""The `Part` of a stage that has only one training."""


@contextmanager
def live_training(
    stage: str,
    title: str,
    curves: Mapping[str, str],
    log: Path | None = None,
    gateway_url: str = "",
    part: Part = WHOLE,
) -> Iterator["LiveTraining"]:
    """Follow a training for as long as the block lasts; if the block raises an error, the training counts as failed.

    `curves` maps a curve's label to its metric. `log` is the training's log file, if it has one.
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
    """Collects the steps, alarms and log of one training, and sends them to its outlets."""

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
        """Metrics in the order of steps, one row per step, even if a step's metrics arrived at different times."""
        return [self._rows[at] for at in sorted(self._rows)]

    @property
    def stopped(self) -> Alarm | None:
        """Alarm of level `stop`, because of which the training must end; None without one."""
        return next((alarm for alarm, _ in self._alarms.values() if alarm.level == "stop"), None)

    def step(self, row: Mapping[str, float], total: int, note: str = "") -> None:
        """Store a step's metrics and the total number of steps, and print a progress line with `note`."""
        at = int(row["step"])
        self._rows[at] = {**self._rows.get(at, {}), **row}
        self._total, self._stepped = total, steady_time()
        note = ", ".join(filter(None, [note, self._part]))
        self._show(at, total, note)
        self._notes = [*self._notes, f"step {at}/{total} {note}".rstrip()[:LOG_WIDTH]][-LOG_LINES:]

    def recall(self, rows: Iterable[Mapping[str, float]]) -> None:
        """Store the steps of an earlier attempt that this training continues."""
        self._rows |= {int(row["step"]): dict(row) for row in rows}

    def check(self, alarms: Iterable[Alarm]) -> None:
        """Store the alarms that the steps raise so far. Print each alarm that is new or has another level."""
        for alarm in alarms:
            before = self._alarms.get(alarm.name)
            if before is None or before[0].level != alarm.level:
                say(f"[{self._stage}] {alarm.level}: {alarm.message}")
            self._alarms[alarm.name] = alarm, max(self._rows, default=0)

    def refresh(self) -> None:
        """Send the current state to each outlet that is due (Outlet.due)."""
        now = steady_time()
        # The remaining time is estimated from the pace after this moment, because earlier steps may be of an earlier
        # attempt.
        if self._first is None and self._rows:
            self._first = max(self._rows), now
        news = self._stepped, len(self._alarms), _size(self._log)
        for outlet in self._outlets:
            if outlet.due(now, news):
                outlet.write(now, news, self.snapshot(now), self.rows)

    def end(self, state: str) -> None:
        """Send the last state (`done` or `failed`) to each outlet at once."""
        self._state, now = state, steady_time()
        for outlet in self._outlets:
            outlet.write(now, state, self.snapshot(now), self.rows)

    def snapshot(self, now: float) -> TrainingSnapshot:
        """Build the snapshot of the training at the time `now`."""
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
