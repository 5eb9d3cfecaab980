"""Metrics of the style server, in the registry that KServe's /metrics shows. Labels never contain a user's text."""

from collections.abc import Callable, Sequence

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64)
PROTOCOLS = ("v1", "v2", "plain")
OUTCOMES = {200: "answered", 413: "too_large", 429: "busy", 499: "hung_up"}


class Metrics:
    """Metrics of one server. `waiting` returns the number of waiting texts at each scrape."""

    def __init__(self, version: str, waiting: Callable[[], int], registry: CollectorRegistry = REGISTRY) -> None:
        self._version = version

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"qinglan_style_{name}", about, labels, registry=registry)

        labels = ["version", "protocol"]
        self._requests = counter("requests", "Requests, by protocol and how they ended.", *labels, "outcome")
        self.under_way = Gauge("qinglan_style_requests_under_way", "Requests not answered yet.", registry=registry)
        self._seconds = Histogram(
            "qinglan_style_seconds", "Time to answer a request.", labels, buckets=SECONDS, registry=registry
        )
        self._texts = counter("texts", "Texts answered.", "predicted_label")
        about = "Texts as long as the model reads, or longer: what is beyond is not read."
        self._cut = counter("texts_cut", about)
        self._together = Histogram(
            "qinglan_style_batch_texts", "Texts answered together.", buckets=TEXTS, registry=registry
        )
        queue = Gauge("qinglan_style_texts_waiting", "Texts that wait for their turn.", registry=registry)
        queue.set_function(waiting)
        for protocol in PROTOCOLS:  # at 0 from the start: a canary is judged by rates, and a missing series has none
            self._seconds.labels(version, protocol)
            for outcome in (*OUTCOMES.values(), "refused", "failed"):
                self._requests.labels(version, protocol, outcome)

    def ended(self, protocol: str, status: int, seconds: float) -> None:
        outcome = OUTCOMES.get(status) or ("refused" if status < 500 else "failed")
        self._requests.labels(self._version, protocol, outcome).inc()
        if status == 200:
            self._seconds.labels(self._version, protocol).observe(seconds)

    def answered(self, labels: Sequence[str], cut: int) -> None:
        """Count one batch: its texts by label, and the number of texts that reach the model's limit (`cut`)."""
        self._together.observe(len(labels))
        self._cut.inc(cut)
        for label in labels:
            self._texts.labels(label).inc()
