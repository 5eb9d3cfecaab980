"""Count requests of two model versions from Prometheus, between a cursor and the newest scrape of both.

Each increase of a counter belongs to the window that contains the scrape of the increase. So windows may have any
length, and no request is counted twice. Requests that were not scraped are missing; they are not estimated.
"""

import logging
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import isfinite
from typing import NamedTuple

from qinglan.errors import OutageError
from serving.rollout.check_counts import (
    SERIES_NAMES,
    SERVERS,
    Counters,
    Series,
    counter_increases,
    counts_by_check,
    make_series,
)
from serving.rollout.cluster.prometheus import PrometheusClient, Sample, ScrapedSeries
from serving.rollout.ports import Window
from serving.rollout.spec import Check

REQUESTS = frozenset(f"{server}_requests_total" for server in SERVERS)
START_TIME_METRIC = "process_start_time_seconds"
LOOKBACK_SECONDS = 180.0
"""Seconds before a window that are also read. A pod that was not scraped for longer counts as a new pod."""
LONGEST = 3600.0
"""Longest window in seconds. Earlier counts, from a time without a controller, are left out."""

DISCOVERY_LABELS = frozenset(
    {
        "__name__", "job", "instance", "pod", "service", "endpoint", "container", "node", "namespace", "cluster",
        "prometheus", "prometheus_replica", "replica",
    }
)  # fmt: skip
"""Labels that Prometheus adds when it discovers a target. They are removed, so that a pod that is discovered
twice counts once."""

CounterKey = tuple[str, Series]
"""Key of one pod's counter: the name of the pod, and the series."""

log = logging.getLogger(__name__)


class Scrapes(NamedTuple):
    """Samples of every counter, and the times of each pod's first scrape and start."""

    counters: Mapping[CounterKey, tuple[Sample, ...]]
    first_scraped: Mapping[str, float]
    started: Mapping[str, float]


class PrometheusEvidence:
    """Source of one rollout's evidence; all times are by the clock of Prometheus."""

    def __init__(self, prometheus: PrometheusClient, namespace: str, checks: Iterable[Check]) -> None:
        self.prometheus, self.checks = prometheus, tuple(checks)
        self._selector = f'{{__name__=~"{"|".join((*SERIES_NAMES, START_TIME_METRIC))}",namespace="{namespace}"}}'

    def since(self, canary: str, stable: str, after: float | None) -> Window | None:
        """Read the window since the cursor `after`; None if one of the versions was not scraped recently."""
        try:
            now = self.prometheus.now()
            if after is not None and after > now:
                after = None  # the clock of Prometheus was set back, so counting starts again
            begin = now if after is None else max(after, now - LONGEST)
            scraped = self.prometheus.samples(self._selector, now, now - begin + LOOKBACK_SECONDS)
        except OutageError as error:
            log.warning("%s: no measurements: %s", canary, error)
            raise
        scrapes = collect_scrapes(scraped)
        until = newest_common_scrape(scrapes, canary, stable)
        if until is None:
            return None
        if after is None:
            return Window(until, {}, {})
        increases = window_growth(scrapes, begin, until)
        return Window(
            until,
            counts_by_check(increases, canary, stable, self.checks),
            counts_by_check(increases, stable, canary, self.checks),
        )


def collect_scrapes(scraped: Iterable[ScrapedSeries]) -> Scrapes:
    """Group the samples by pod and series. If a pod was discovered twice, the newer samples are used."""
    counters: dict[CounterKey, tuple[Sample, ...]] = {}
    first_seen: dict[str, float] = {}
    started: dict[str, float] = {}
    for raw in scraped:
        series = raw._replace(samples=tuple(sample for sample in raw.samples if isfinite(sample.value)))
        if not series.samples:
            continue
        pod = series.labels.get("pod") or series.labels.get("instance", "")
        first_seen[pod] = min(first_seen.get(pod, series.samples[0].at), series.samples[0].at)
        if series.labels["__name__"] == START_TIME_METRIC:
            started[pod] = max(started.get(pod, 0.0), series.samples[-1].value)
            continue
        labels = {name: value for name, value in series.labels.items() if name not in DISCOVERY_LABELS}
        key = pod, make_series(series.labels["__name__"], labels)
        if key not in counters or _freshness(series.samples) > _freshness(counters[key]):
            counters[key] = series.samples
    return Scrapes(counters, first_seen, started)


def newest_common_scrape(scrapes: Scrapes, *versions: str) -> float | None:
    """Return the newest time up to which all these versions were scraped; None if one was not scraped."""
    newest: dict[str, float] = {}
    for (_, series), samples in scrapes.counters.items():
        if series.name in REQUESTS:
            version = series.label("version")
            newest[version] = max(newest.get(version, 0.0), samples[-1].at)
    return min(newest[version] for version in versions) if newest.keys() >= set(versions) else None


def window_growth(scrapes: Scrapes, begin: float, until: float) -> Counters:
    """Compute the increase of each series between `begin` and `until`, summed over all pods."""
    increases: dict[Series, float] = {}
    for (pod, series), samples in scrapes.counters.items():
        steps = (
            counter_increases({series: before.value}, {series: after.value})[series]
            for before, after in pairwise(_with_zero_start(pod, samples, scrapes))
            if begin < after.at <= until
        )
        increases[series] = increases.get(series, 0.0) + sum(steps)
    return increases


def _with_zero_start(pod: str, samples: tuple[Sample, ...], scrapes: Scrapes) -> tuple[Sample, ...]:
    """Add a sample of 0 before the first sample if the counter is known to be new.

    A counter is new if its pod was scraped earlier without it, or if the pod's process started recently. Otherwise
    the first sample only serves as the start value.
    """
    first = samples[0].at
    earlier = scrapes.first_scraped[pod]
    if earlier < first:
        return (Sample(earlier, 0.0), *samples)
    young = 0.0 <= first - scrapes.started.get(pod, 0.0) < LOOKBACK_SECONDS
    return (Sample(first - 1e-3, 0.0), *samples) if young else samples


def _freshness(samples: tuple[Sample, ...]) -> tuple[float, int]:
    return samples[-1].at, len(samples)
