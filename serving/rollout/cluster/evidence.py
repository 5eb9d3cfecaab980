"""Counts of two model versions from Prometheus, between a cursor and the newest time at which both were scraped.

Each increase counts in the window of the scrape that showed it, and in no other, so that windows may be of any length
and no request is in two of them. Requests that were not scraped are missing; no estimate takes their place.
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
"""Seconds before a window that are read with it: a pod that was not scraped for longer counts as a new one."""
LONGEST = 3600.0
"""Seconds of the longest window. Earlier counts, from a time without a controller, are left out."""

DISCOVERY_LABELS = frozenset(
    {
        "__name__", "job", "instance", "pod", "service", "endpoint", "container", "node", "namespace", "cluster",
        "prometheus", "prometheus_replica", "replica",
    }
)  # fmt: skip
"""Labels that Prometheus adds when it discovers a target. A pod discovered in several ways is counted once."""

CounterKey = tuple[str, Series]
"""One counter of one pod: the pod's name, and the series."""

log = logging.getLogger(__name__)


class Scrapes(NamedTuple):
    """The samples of every counter, and for every pod the times of its first scrape and of its start."""

    counters: Mapping[CounterKey, tuple[Sample, ...]]
    first_scraped: Mapping[str, float]
    started: Mapping[str, float]


class PrometheusEvidence:
    """The evidence of one rollout, on the clock of Prometheus."""

    def __init__(self, prometheus: PrometheusClient, namespace: str, checks: Iterable[Check]) -> None:
        self.prometheus, self.checks = prometheus, tuple(checks)
        self._selector = f'{{__name__=~"{"|".join((*SERIES_NAMES, START_TIME_METRIC))}",namespace="{namespace}"}}'

    def since(self, canary: str, stable: str, after: float | None) -> Window | None:
        """The window since the cursor; None if one of the two versions was not scraped lately."""
        try:
            now = self.prometheus.now()
            if after is not None and after > now:
                after = None  # the clock of Prometheus was set back: nothing is between, and counting starts again
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
    """The counters by pod and series; of a pod that was discovered in two ways, the one scraped last."""
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
    """The newest time up to which every one of these versions was scraped; None if one was not."""
    newest: dict[str, float] = {}
    for (_, series), samples in scrapes.counters.items():
        if series.name in REQUESTS:
            version = series.label("version")
            newest[version] = max(newest.get(version, 0.0), samples[-1].at)
    return min(newest[version] for version in versions) if newest.keys() >= set(versions) else None


def window_growth(scrapes: Scrapes, begin: float, until: float) -> Counters:
    """The increase of each series in the window, summed over all pods."""
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
    """Put a sample of 0 before the first one, if the counter is known to have started after the window did.

    That is known if the pod was scraped earlier without this counter, or if its process started lately. Otherwise the
    first sample only says where to begin.
    """
    first = samples[0].at
    earlier = scrapes.first_scraped[pod]
    if earlier < first:
        return (Sample(earlier, 0.0), *samples)
    young = 0.0 <= first - scrapes.started.get(pod, 0.0) < LOOKBACK_SECONDS
    return (Sample(first - 1e-3, 0.0), *samples) if young else samples


def _freshness(samples: tuple[Sample, ...]) -> tuple[float, int]:
    return samples[-1].at, len(samples)
