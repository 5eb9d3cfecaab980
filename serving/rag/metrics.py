"""Metrics of the RAG service. Label values come from the configuration, never from a request."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

MOST_VERSIONS = 20
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
UNKNOWN = "unknown"
CACHE = "cache"
"""Label of a search with a cached rewrite. Such a search counts for no model version, because a rollout compares only
the questions that its two models answered."""

NO_VERSION = ("request", "fallback", "as asked", CACHE)
"""Labels of a search whose query was not written by a model for this request."""


class Metrics:
    """Metrics of one service, in a separate Prometheus registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"qinglan_rag_{name}", about, labels, registry=self.registry)

        def histogram(name: str, about: str, *labels: str) -> Histogram:
            return Histogram(f"qinglan_rag_{name}", about, labels, buckets=SECONDS, registry=self.registry)

        self._versions: dict[str, None] = {}  # in the order of their last count
        self._requests = counter("requests", "Requests answered.", "tenant", "rewriter", "status")
        self._seconds = histogram("seconds", "Time to answer.", "tenant", "rewriter")
        self._empty = counter("zero_hits", "Answers without a passage.", "tenant", "rewriter")
        self._fallbacks = counter("fallbacks", "Plain queries searched.", "tenant", "reason")
        self._away = counter("engine_outages", "Answers that the search engine owed.", "reason")
        self._checks = counter("content_checks", "Outgoing answers checked, or why not.", "tenant", "outcome")
        self._check_seconds = histogram("content_check_seconds", "Time to check an answer.", "tenant")
        about = "Questions without a rewrite, by what the cache of rewrites held."
        self._cache = counter("rewrite_cache", about, "tenant", "outcome")
        about = "Answers with the local score in place of the service's."
        self._reranker_fallbacks = counter("reranker_fallbacks", about, "tenant", "reason")
        self._rerank_seconds = histogram(
            "reranker_seconds", "Time to score an answer's passages.", "tenant", "reranker"
        )

    def watch_rewriter(self, patience_seconds: Callable[[], float], circuit_open: Callable[[], bool]) -> None:
        """Add gauges of the rewriter client: the current wait for a rewrite, and if its circuit breaker is open."""
        about = "Longest wait for a rewrite at present."
        Gauge("qinglan_rag_rewriter_patience_seconds", about, registry=self.registry).set_function(patience_seconds)
        about = "1 while questions are not sent to a rewriter that hangs."
        Gauge("qinglan_rag_rewriter_circuit_open", about, registry=self.registry).set_function(circuit_open)

    def answered(self, tenant: str, rewriter: str, seconds: float, hits: int) -> None:
        """Count and time an answer. `rewriter` is the version of the deployed model, or a label of NO_VERSION."""
        label = self._known(rewriter)
        self._requests.labels(tenant, label, "200").inc()
        self._seconds.labels(tenant, label).observe(seconds)
        if not hits:
            self._empty.labels(tenant, label).inc()

    def fell_back(self, tenant: str, reason: str) -> None:
        self._fallbacks.labels(tenant, reason).inc()

    def rewritten(self, tenant: str, cached: bool, cache_open: bool) -> None:
        """Count a question without a rewrite: `hit` or `miss` of the cache, or `off` while the cache is closed."""
        self._cache.labels(tenant, "hit" if cached else "miss" if cache_open else "off").inc()

    def reranked(self, tenant: str, by: str, reason: str, seconds: float) -> None:
        """Record the scoring time of `by` (`local` or `service`), and why `local` replaced a failed service
        (`reason`)."""
        self._rerank_seconds.labels(tenant, by).observe(seconds)
        if reason:
            self._reranker_fallbacks.labels(tenant, reason).inc()

    def engine_away(self, reason: str) -> None:
        self._away.labels(reason).inc()

    def content_checked(self, tenant: str, outcome: str, seconds: float) -> None:
        """Count and time a check; `outcome` is `passed`, `flagged`, or the reason of its failure."""
        self._checks.labels(tenant, outcome).inc()
        self._check_seconds.labels(tenant).observe(seconds)

    def refused(self, status: int) -> None:
        """Count a rejected request. Its tenant name is unverified, so it is labelled `unknown`."""
        self._requests.labels(UNKNOWN, UNKNOWN, str(status)).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def _known(self, version: str) -> str:
        """Return the version as a label. Removes the metrics of the least recently used version above
        MOST_VERSIONS."""
        if version in NO_VERSION:
            return version
        self._versions.pop(version, None)
        self._versions[version] = None
        if len(self._versions) > MOST_VERSIONS:
            oldest = next(iter(self._versions))
            del self._versions[oldest]
            for counted in (self._requests, self._seconds, self._empty):
                counted.remove_by_labels({"rewriter": oldest})
        return version
