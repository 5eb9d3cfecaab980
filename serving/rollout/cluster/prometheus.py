"""Read samples from Prometheus exactly as they were scraped.

Nothing is extrapolated. The lookback of Prometheus, which repeats an old value for five minutes, is not used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx2

from qinglan.errors import ConfigError, OutageError
from qinglan.http.addresses import address_fault
from qinglan.http.http_client import sync_client

ANSWER_SECONDS = 15.0
MAX_ANSWER_BYTES = 64_000_000
"""Largest answer in bytes. A day of a hundred series that are scraped every five seconds has 50 MB."""


class Sample(NamedTuple):
    at: float
    value: float


class ScrapedSeries(NamedTuple):
    """Labels and samples of one series, oldest sample first."""

    labels: dict[str, str]
    samples: tuple[Sample, ...]


class PrometheusClient:
    """Client of the HTTP API. It raises an OutageError if Prometheus gives no complete answer."""

    def __init__(self, url: str) -> None:
        if fault := address_fault(url):
            raise ConfigError(f"--prometheus: {fault}.")
        self.url = url.rstrip("/")
        self._client = sync_client(timeout=ANSWER_SECONDS, largest=MAX_ANSWER_BYTES)

    def close(self) -> None:
        self._client.close()

    def now(self) -> float:
        """Current time by the clock of Prometheus, which also dates its samples."""
        with _malformed_as_outage(self.url):
            return float(self._query("time()", "scalar")[0])

    def samples(self, selector: str, until: float, seconds: float) -> list[ScrapedSeries]:
        """Read the samples of the last `seconds` before `until`."""
        with _malformed_as_outage(self.url):
            # A range selector at one instant returns the scraped samples; /query_range would interpolate at its
            # steps. https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries
            matrix = self._query(f"{selector}[{max(round(seconds * 1000), 1)}ms]", "matrix", time=f"{until:.3f}")
            return [
                ScrapedSeries(
                    {str(name): str(value) for name, value in series["metric"].items()},
                    tuple(Sample(float(at), float(value)) for at, value in series["values"]),
                )
                for series in matrix
            ]

    def _query(self, query: str, kind: str, **parameters: str) -> Any:
        try:
            answer = self._client.post(f"{self.url}/api/v1/query", data={"query": query, **parameters})
        except httpx2.HTTPError as error:
            raise OutageError(f"{self.url}: {type(error).__name__} {error}. Does Prometheus run there?") from error
        if answer.status_code != 200:
            raise OutageError(f"{self.url}: {answer.status_code} {answer.text[:200]}")
        body = answer.json()
        if body["status"] != "success" or body["data"]["resultType"] != kind or body.get("warnings"):
            raise OutageError(f"{self.url}: no whole answer: {str(body)[:200]}")
        return body["data"]["result"]


@contextmanager
def _malformed_as_outage(url: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise OutageError(f"{url}: does not answer as Prometheus does ({what}). Is it another server?") from error
