"""What Prometheus has of two model versions between a cursor and the newest moment that both were scraped at.

Each increase counts in the window of the scrape that showed it, and in no other: windows may be of any length and no
request is in two of them. What nobody scraped is not there, and nothing is made up for it.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import isfinite
from typing import NamedTuple

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
"""How long before a window its first count is looked for: a pod that was not scraped for longer begins anew."""
LONGEST = 3600.0
"""Of a window. What was counted before, while nobody looked, is left out."""

DISCOVERY_LABELS = frozenset(
    {
        "__name__", "job", "instance", "pod", "service", "endpoint", "container", "node", "namespace", "cluster",
        "prometheus", "prometheus_replica", "replica",
    }
)  # fmt: skip
"""Labels by which Prometheus tells places apart. One pod may be found in many ways, and is counted once."""

CounterKey = tuple[str, Series]
"""Of one counter: whose, and which."""


class Scrapes(NamedTuple):
    """What was read: the samples of every counter, and of every place when it was first seen and when it started."""

    counters: Mapping[CounterKey, tuple[Sample, ...]]
    first_scraped: Mapping[str, float]
    started: Mapping[str, float]


class PrometheusEvidence:
    """Of one rollout. Its clock is Prometheus's."""

    def __init__(self, prometheus: PrometheusClient, namespace: str, checks: Iterable[Check]) -> None:
        self.prometheus, self.checks = prometheus, tuple(checks)
        self._selector = f'{{__name__=~"{"|".join((*SERIES_NAMES, START_TIME_METRIC))}",namespace="{namespace}"}}'

    def since(self, canary: str, stable: str, after: float | None) -> Window | None:
        """None where one of the two was not scraped of late."""
        now = self.prometheus.now()
        begin = now if after is None else max(after, now - LONGEST)
        scrapes = collect_scrapes(self.prometheus.samples(self._selector, now, now - begin + LOOKBACK_SECONDS))
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
    """Of a place that was found in two ways, the one that was scraped last."""
    counters: dict[CounterKey, tuple[Sample, ...]] = {}
    first_seen: dict[str, float] = {}
    started: dict[str, float] = {}
    for whole in scraped:
        series = whole._replace(samples=tuple(sample for sample in whole.samples if isfinite(sample.value)))
        if not series.samples:
            continue
        pod = series.labels.get("pod") or series.labels.get("instance", "")
        first_seen[pod] = min(first_seen.get(pod, series.samples[0].at), series.samples[0].at)
        if series.labels["__name__"] == START_TIME_METRIC:
            started[pod] = max(started.get(pod, 0.0), series.samples[-1].value)
            continue
        key = pod, _parse_series(series.labels)
        if key not in counters or _freshness(series.samples) > _freshness(counters[key]):
            counters[key] = series.samples
    return Scrapes(counters, first_seen, started)


def newest_common_scrape(scrapes: Scrapes, *versions: str) -> float | None:
    """The newest moment up to which there are scrapes of every one of these versions."""
    newest: dict[str, float] = {}
    for (_, series), samples in scrapes.counters.items():
        if series.name in REQUESTS:
            version = series.label("version")
            newest[version] = max(newest.get(version, 0.0), samples[-1].at)
    return min(newest[version] for version in versions) if newest.keys() >= set(versions) else None


def window_growth(scrapes: Scrapes, begin: float, until: float) -> Counters:
    """By counter, over all places."""
    increases: dict[Series, float] = {}
    for (pod, series), samples in scrapes.counters.items():
        increase = _increase(_with_zero_start(pod, samples, scrapes), series, begin, until)
        increases[series] = increases.get(series, 0.0) + increase
    return increases


def _increase(samples: tuple[Sample, ...], series: Series, begin: float, until: float) -> float:
    """What its steps in the window were; a step down is a process that began anew."""
    steps = (
        counter_increases({series: before.value}, {series: after.value})[series]
        for before, after in pairwise(samples)
        if _in(after, begin, until)
    )
    return sum(steps)


def _in(sample: Sample, begin: float, until: float) -> bool:
    return begin < sample.at <= until


def _with_zero_start(pod: str, samples: tuple[Sample, ...], scrapes: Scrapes) -> tuple[Sample, ...]:
    """With a nought before, where the counter is known to have begun since: its place was scraped earlier without it,
    or its process started after what was read begins. Else the first sample only says where to begin.
    """
    first = samples[0].at
    earlier = scrapes.first_scraped[pod]
    if earlier < first:
        return (Sample(earlier, 0.0), *samples)
    young = 0.0 <= first - scrapes.started.get(pod, 0.0) < LOOKBACK_SECONDS
    return (Sample(first - 1e-3, 0.0), *samples) if young else samples


def _parse_series(labels: Mapping[str, str]) -> Series:
    return make_series(
        labels["__name__"], {name: value for name, value in labels.items() if name not in DISCOVERY_LABELS}
    )


def _freshness(samples: tuple[Sample, ...]) -> tuple[float, int]:
    return samples[-1].at, len(samples)
