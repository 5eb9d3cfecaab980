"""The service's metrics. Label values come from the configuration, never from what a caller types."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

MOST_VERSIONS = 20
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
UNKNOWN = "unknown"
CACHE = "cache"
"""Label of a search with a remembered rewrite: it counts for no version, since a rollout compares questions that the
two models were really asked."""

NO_VERSION = ("request", "fallback", "as asked", CACHE)
"""Labels of a search that no model rewrote just now."""


class Metrics:
    """One service's counters, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._versions: dict[str, None] = {}  # the one that was counted last comes last
        labels = ["tenant", "rewriter"]
        self._requests = Counter(
            "qinglan_rag_requests", "Requests answered.", [*labels, "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "qinglan_rag_seconds", "Time to answer.", labels, buckets=SECONDS, registry=self.registry
        )
        self._empty = Counter("qinglan_rag_zero_hits", "Answers without a passage.", labels, registry=self.registry)
        self._fallbacks = Counter(
            "qinglan_rag_fallbacks", "Plain queries searched.", ["tenant", "reason"], registry=self.registry
        )
        self._away = Counter(
            "qinglan_rag_engine_outages", "Answers that the search engine owed.", ["reason"], registry=self.registry
        )
        self._checks = Counter(
            "qinglan_rag_content_checks", "Outgoing answers checked, or why not.", ["tenant", "outcome"],
            registry=self.registry,
        )  # fmt: skip
        self._check_seconds = Histogram(
            "qinglan_rag_content_check_seconds", "Time to check an answer.", ["tenant"], buckets=SECONDS,
            registry=self.registry,
        )  # fmt: skip
        self._cache = Counter(
            "qinglan_rag_rewrite_cache", "Questions without a rewrite, by what the cache of rewrites held.",
            ["tenant", "outcome"], registry=self.registry,
        )  # fmt: skip
        self._reranker_fallbacks = Counter(
            "qinglan_rag_reranker_fallbacks", "Answers with the local score in place of the service's.",
            ["tenant", "reason"], registry=self.registry,
        )  # fmt: skip
        self._rerank_seconds = Histogram(
            "qinglan_rag_reranker_seconds", "Time to score an answer's passages.", ["tenant", "reranker"],
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip

    def watch_rewriter(self, patience_seconds: Callable[[], float], circuit_open: Callable[[], bool]) -> None:
        """Show the client's present state: how long a question waits, and if the rewriter is left alone."""
        Gauge(
            "qinglan_rag_rewriter_patience_seconds", "Longest wait for a rewrite at present.", registry=self.registry
        ).set_function(patience_seconds)
        Gauge(
            "qinglan_rag_rewriter_circuit_open", "1 while questions are not sent to a rewriter that hangs.",
            registry=self.registry,
        ).set_function(circuit_open)  # fmt: skip

    def answered(self, tenant: str, rewriter: str, seconds: float, hits: int) -> None:
        """`rewriter` is the deployed version, or one of NO_VERSION."""
        label = self._known(rewriter)
        self._requests.labels(tenant, label, "200").inc()
        self._seconds.labels(tenant, label).observe(seconds)
        if not hits:
            self._empty.labels(tenant, label).inc()

    def fell_back(self, tenant: str, reason: str) -> None:
        self._fallbacks.labels(tenant, reason).inc()

    def rewritten(self, tenant: str, cached: bool, cache_open: bool) -> None:
        """Count a question that came without a rewrite; `off` while a rollout is under way, or without a cache."""
        self._cache.labels(tenant, "hit" if cached else "miss" if cache_open else "off").inc()

    def reranked(self, tenant: str, by: str, reason: str, seconds: float) -> None:
        """`by` is local or service; `reason` why it is local though a service is configured, else empty."""
        self._rerank_seconds.labels(tenant, by).observe(seconds)
        if reason:
            self._reranker_fallbacks.labels(tenant, reason).inc()

    def engine_away(self, reason: str) -> None:
        self._away.labels(reason).inc()

    def content_checked(self, tenant: str, outcome: str, seconds: float) -> None:
        """`outcome` is passed, flagged, or the reason why the check gave no answer."""
        self._checks.labels(tenant, outcome).inc()
        self._check_seconds.labels(tenant).observe(seconds)

    def refused(self, status: int) -> None:
        """A refusal has no tenant: the name in it may be anything."""
        self._requests.labels(UNKNOWN, UNKNOWN, str(status)).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def _known(self, version: str) -> str:
        """The version as a label; where there are too many, the one that was not counted for longest is forgotten."""
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
