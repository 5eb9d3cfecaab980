"""Metrics of the rollout controller."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from serving.rollout.cluster.inference_service import Object

SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
RESULTS = ("done", "waited", "acted", "again", "unreachable", "follower", "failed")
PHASES = ("Verify", "Apply", "WaitReady", "Analyse", "Promote", "Rollback")
"""Phases of a rollout under way."""


def judges_quality(rollout: Object) -> bool:
    """Return True if the rollout needs shadow pairs now.

    Its checks are in the spec or, if the spec names none, in the status.
    """
    status = rollout.get("status") or {}
    checks = rollout["spec"].get("checks") or status.get("checks") or ()
    return status.get("phase") == "Analyse" and "quality" in {check.get("name") for check in checks}


class ControllerStatus(NamedTuple):
    """State of the controller when Prometheus scrapes it."""

    phases: Mapping[str, int]
    judging_quality: int
    leads: bool
    seconds_unreconciled: float
    calls: Mapping[str, int]


class Metrics:
    """Metrics of one controller. Every series exists at 0 from the start."""

    def __init__(self, status: Callable[[], ControllerStatus]) -> None:
        self.registry = CollectorRegistry()
        self._status = status
        self._reconciles = Counter(
            "qinglan_rollout_looks", "Looks, and how they ended.", ["result"], registry=self.registry
        )
        for result in RESULTS:
            self._reconciles.labels(result)
        self._seconds = Histogram(
            "qinglan_rollout_look_seconds", "Time of a look.", buckets=SECONDS, registry=self.registry
        )
        self.registry.register(self)

    def observe_reconcile(self, result: str, seconds: float) -> None:
        self._reconciles.labels(result).inc()
        self._seconds.observe(seconds)

    def collect(self) -> Iterator[Any]:
        status = self._status()
        rollouts = GaugeMetricFamily("qinglan_rollout_rollouts", "Rollouts under way.", labels=["phase"])
        for phase in PHASES:
            rollouts.add_metric([phase], status.phases.get(phase, 0))
        yield rollouts
        yield GaugeMetricFamily(
            "qinglan_rollout_judging_quality",
            "Of those in Analyse, with the check `quality`.",
            value=status.judging_quality,
        )
        yield GaugeMetricFamily("qinglan_rollout_leader", "Whether this one leads.", value=float(status.leads))
        yield GaugeMetricFamily(
            "qinglan_rollout_unlooked_seconds",
            "Since the last good look of the rollout that waits longest.",
            value=status.seconds_unreconciled,
        )
        calls = CounterMetricFamily("qinglan_rollout_api_calls", "Calls of the API server.", labels=["call"])
        for call, count in sorted(status.calls.items()):
            calls.add_metric([call], count)
        yield calls
