"""Newest snapshot of each training that reports to this gateway, for people and for Prometheus.

Snapshots are kept only in memory, because each training reports again within seconds after a restart.
"""

import time
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from pydantic import ValidationError

from qinglan.config import explain_validation_error
from qinglan.documents import refuse_twice_named
from qinglan.errors import DataError
from qinglan.live.snapshot import TrainingSnapshot

MOST = 32
"""Highest number of stored trainings. A further training replaces the one that has been silent the longest."""

RUNNING_SECONDS, ENDED_SECONDS = 6 * 3600.0, 900.0
"""Seconds after its last report for which a training has metrics: while it runs, and after it has ended."""

PLACE_SECONDS = 600.0
"""Seconds of silence after which a new training may replace a running one, if MOST trainings are stored.

So a client that posts invented names once cannot exclude real trainings for hours. A training with longer steps
returns with its next report."""


class Trainings(Collector):
    """Store of each training's newest snapshot, and collector of the trainings' metrics for Prometheus."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reports: dict[tuple[str, str], tuple[float, TrainingSnapshot]] = {}

    def take(self, body: bytes) -> None:
        """Store a training's newest snapshot. Raises a DataError if MOST other trainings are active."""
        refuse_twice_named(body, "body")
        try:
            snapshot = TrainingSnapshot.model_validate_json(body)
        except ValidationError as error:
            raise DataError(f"body: {explain_validation_error(error, show_input=False)}.") from error
        key = snapshot.run, snapshot.stage
        if key not in self._reports and len(self._reports) >= MOST:
            over = (known for known, (at, training) in self._reports.items() if self._is_silent(at, training))
            if (oldest := next(over, None)) is None:  # a training that still reports keeps its place
                raise DataError(
                    f"run: {MOST} trainings report here already. The next is shown when one of them is over."
                )
            del self._reports[oldest]
        self._reports.pop(key, None)
        self._reports[key] = self._clock(), snapshot

    def snapshots(self) -> list[TrainingSnapshot]:
        return [snapshot for _, snapshot in reversed(self._reports.values())]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        labels = ["run", "stage"]
        gauges = {
            name: GaugeMetricFamily(f"qinglan_training_{name}", about, labels=labels)
            for name, about in {
                "running": "1 while it trains, 0 once it ended.",
                "failed": "1 if it ended with an error.",
                "step": "Its newest step.",
                "steps": "Its steps in all.",
                "step_timestamp_seconds": "When its newest step came.",
            }.items()
        }
        figures = GaugeMetricFamily("qinglan_training_figure", "Newest value.", labels=[*labels, "figure"])
        alarms = GaugeMetricFamily("qinglan_training_alarm", "1 if raised.", labels=[*labels, "alarm", "level"])
        for at, training in list(self._reports.values()):
            if not self._is_fresh(at, training):
                continue  # otherwise Prometheus would show it as running
            key = [training.run, training.stage]
            values = {
                "running": float(training.state == "running"),
                "failed": float(training.state == "failed"),
                "step": training.step,
                "steps": training.total,
                "step_timestamp_seconds": training.stepped,
            }
            for name, value in values.items():
                gauges[name].add_metric(key, value)
            for name, value in training.figures.items():
                figures.add_metric([*key, name], value)
            for alarm in training.alarms:
                alarms.add_metric([*key, alarm.name, alarm.level], 1)
        yield from (*gauges.values(), figures, alarms)

    def _is_silent(self, at: float, training: TrainingSnapshot) -> bool:
        return self._clock() - at > PLACE_SECONDS or not self._is_fresh(at, training)

    def _is_fresh(self, at: float, training: TrainingSnapshot) -> bool:
        return self._clock() - at <= (RUNNING_SECONDS if training.state == "running" else ENDED_SECONDS)
