"""Count requests of two model versions between two reconciles, from the /metrics of the router and of the servers.

    requests and their outcomes    from the router, so that requests to a server that dies, hangs or refuses
                                   connections are counted too, and none twice
    everything else                from each server, the RAG service and the shadow

Two snapshots of the counters are kept: one for the cursor in the ledger, and one for the possible next cursor. A
restarted controller has no snapshot, so it counts again from its first window.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from qinglan.errors import OutageError
from qinglan.http.http_client import Client, sync_client
from serving.rollout.check_counts import (
    SERIES_NAMES,
    Counters,
    Series,
    counter_increases,
    counts_by_check,
    make_series,
)
from serving.rollout.ports import Window
from serving.rollout.spec import Check
from standins.rollout_local.object_files import ObjectFiles
from standins.rollout_local.service import SERVICE_NAME, parse_status

ANSWER_SECONDS = 2.0
ROUTER_COUNTER = "qinglan_rewriter_requests_total"

CounterSnapshot = Mapping[str, Counters]
"""Counters of each source, by the source's URL."""


class LocalEvidence:
    """Source of one rollout's evidence. `extra_urls` are other servers with /metrics, such as the RAG service."""

    def __init__(self, folder: Path, checks: Sequence[Check], extra_urls: Sequence[str] = ()) -> None:
        self._objects, self._checks, self._extra_urls = ObjectFiles(folder), checks, extra_urls
        self._snapshots: dict[float, CounterSnapshot] = {}

    def since(self, canary: str, stable: str, after: float | None) -> Window | None:
        """Return the counts since the cursor `after`. None if its snapshot is lost; counting then restarts."""
        now, until = self._take_snapshot(), time.time()
        before = None if after is None else self._snapshots.get(after)
        if after is not None and before is None:
            self._snapshots = {after: now}
            return None
        if after is None or before is None or until < after:  # a clock that was set back: counting restarts
            self._snapshots = {until: now}
            return Window(until, {}, {})
        self._snapshots = {after: before, until: now}
        increases = sum_counters(
            counter_increases(before[source], counters) for source, counters in now.items() if source in before
        )
        both = (counts_by_check(increases, *pair, self._checks) for pair in ((canary, stable), (stable, canary)))
        return Window(until, *both)

    def _take_snapshot(self) -> CounterSnapshot:
        """Scrape all servers. The router must answer; for any other server that fails, its last counters are used."""
        status = parse_status(self._objects.read(SERVICE_NAME))
        last = next(reversed(self._snapshots.values()), {})  # not the latest by its time: the clock may be set back
        router = filter_counters(scrape_counters(status.url), lambda name: name == ROUTER_COUNTER)
        snapshot = {**last, status.url: router}
        for url in (*(server.url for server in status.servers.values() if server.url), *self._extra_urls):
            with suppress(OutageError):
                snapshot[url] = filter_counters(scrape_counters(url), lambda name: name != ROUTER_COUNTER)
        return snapshot


def scrape_counters(url: str) -> Counters:
    """Read the counters of the checks from a server's /metrics. Raises an OutageError if there is no valid answer."""
    try:
        answer = _http().get(f"{url}/metrics").raise_for_status()
        samples = (sample for family in text_string_to_metric_families(answer.text) for sample in family.samples)
        return {
            make_series(sample.name, sample.labels): float(sample.value)
            for sample in samples
            if sample.name in SERIES_NAMES
        }
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, IndexError) as error:
        raise OutageError(f"{url}/metrics: no numbers ({type(error).__name__}).") from error


@cache
def _http() -> Client:
    """Create the HTTP client, without keep-alive, because servers are replaced."""
    limits = httpx2.Limits(max_keepalive_connections=0)
    return sync_client(timeout=ANSWER_SECONDS, limits=limits)


def filter_counters(counters: Counters, is_included: Callable[[str], bool]) -> Counters:
    return {series: value for series, value in counters.items() if is_included(series.name)}


def sum_counters(parts: Iterable[Counters]) -> Counters:
    total: dict[Series, float] = {}
    for part in parts:
        for series, value in part.items():
            total[series] = total.get(series, 0.0) + value
    return total
