"""Metrics of the rewriter server, in the registry that KServe's /metrics shows. Labels never contain a user's text.

Every series exists at 0 from the start, because a rollout judges a canary by rates, and a missing series has no rate.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import get_args

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from qinglan.rewriter.guard import GUARDS
from serving.rewriter.config import RequestProtocol

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0)
TOKEN_BUCKETS = (8, 16, 32, 64, 128, 256, 512)
"""Buckets of the tokens in one rewrite; a search query usually has 12 to 24."""

ANSWERED, FAILED, REFUSED, SHADOW = "answered", "failed", "refused", "shadow"
HUNG_UP = "hung_up"
OUTCOME_OF_STATUS = {200: ANSWERED, 408: HUNG_UP, 413: "too_large", 429: "busy", 499: HUNG_UP, 504: "late"}
OUTCOMES = (ANSWERED, REFUSED, "busy", "too_large", "late", HUNG_UP, FAILED, SHADOW)
PAYLOAD_OUTCOMES = ("kept", "dropped", "failed")


def request_outcome(status: int) -> str:
    return OUTCOME_OF_STATUS.get(status) or (REFUSED if status < 500 else FAILED)


class Metrics:
    """Metrics of one model version. `waiting` returns the number of waiting questions at each scrape."""

    def __init__(
        self, version: str, tenants: Iterable[str], waiting: Callable[[], int], registry: CollectorRegistry = REGISTRY
    ) -> None:
        self._version = version

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"qinglan_rewriter_{name}", what, ["version", *labels], registry=registry)

        self._requests = counter("requests", "Requests, and how they ended.", "protocol", "outcome")
        self._questions = counter("questions", "Questions answered.", "tenant")
        self._fallbacks = counter("fallbacks", "Questions given back as they were, and why.", "reason")
        self._guards = counter("guards", "Texts that did not pass a guard.", "guard")
        self._tokens = counter("tokens", "Tokens read and written.", "kind")
        self._trimmed = counter("trimmed_prompts", "Questions answered without the oldest turns of a long history.")
        self._payloads = counter("payloads", "Records of the payload log.", "outcome")
        labels, about = ["version", "protocol"], "Time to answer a request."
        self._seconds = Histogram("qinglan_rewriter_seconds", about, labels, buckets=SECONDS, registry=registry)
        name, about = "qinglan_rewriter_written_tokens", "Tokens written for one question."
        written = Histogram(name, about, ["version"], buckets=TOKEN_BUCKETS, registry=registry)
        self._written = written.labels(version)
        self.under_way = Gauge(
            "qinglan_rewriter_under_way", "Requests not answered yet.", ["version"], registry=registry
        ).labels(version)
        Gauge(
            "qinglan_rewriter_waiting", "Questions that wait for their turn.", ["version"], registry=registry
        ).labels(version).set_function(waiting)
        # https://prometheus.io/docs/practices/instrumentation/#avoid-missing-metrics
        for protocol in get_args(RequestProtocol):
            self._seconds.labels(self._version, protocol)
            for how in OUTCOMES:
                self._requests.labels(self._version, protocol, how)
        self._trimmed.labels(self._version)
        for series, names in (
            (self._questions, tenants), (self._fallbacks, GUARDS), (self._guards, GUARDS),
            (self._tokens, ("prompt", "written")), (self._payloads, PAYLOAD_OUTCOMES),
        ):  # fmt: skip
            for name in names:
                series.labels(self._version, name)

    def ended(self, protocol: RequestProtocol, how: str, seconds: float) -> None:
        self._requests.labels(self._version, protocol, how).inc()
        if how == ANSWERED:
            self._seconds.labels(self._version, protocol).observe(seconds)

    def missed(self, protocol: RequestProtocol, seconds: float) -> None:
        """Count an answer whose client had disconnected.

        The time is recorded, too, because a slow model whose clients give up would look fast otherwise.
        """
        self._requests.labels(self._version, protocol, HUNG_UP).inc()
        self._seconds.labels(self._version, protocol).observe(seconds)

    def answered(self, tenant: str, guards: Sequence[str], prompt_tokens: int, written_tokens: int) -> None:
        """Count an answered question. `guards` are the failed guards; the first one is the reason of its fallback."""
        self._questions.labels(self._version, tenant).inc()
        for guard in guards:
            self._guards.labels(self._version, guard).inc()
        if guards:
            self._fallbacks.labels(self._version, guards[0]).inc()
        self._tokens.labels(self._version, "prompt").inc(prompt_tokens)
        self._tokens.labels(self._version, "written").inc(written_tokens)
        self._written.observe(written_tokens)

    def trimmed(self, count: int) -> None:
        self._trimmed.labels(self._version).inc(count)

    def payload(self, how: str, count: int = 1) -> None:
        self._payloads.labels(self._version, how).inc(count)
