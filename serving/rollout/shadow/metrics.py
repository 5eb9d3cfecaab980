"""Metrics of the shadow: pairs by outcome, which check_counts.py reads, and failures by reason."""

from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter

PairOutcome = Literal["won", "lost", "tied"]
"""Outcome of a pair of rewrites, from the canary's point of view."""

FailureReason = Literal[
    "payload_log", "unreadable", "no_text", "too_many", "canary_unreachable", "canary_late", "canary_refused",
    "canary_malformed", "other_version", "rag", "scored_by_query", "judge", "no_tag_route", "api_server",
    "unexpected",
]  # fmt: skip


class Metrics:
    """Metrics of one shadow, in a separate registry. Every series exists at 0 before anything is counted."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        about, labels = "Questions that both models have rewritten, by the canary's outcome.", ["canary", "stable"]
        self._pairs = Counter("qinglan_shadow_pairs", about, [*labels, "outcome"], registry=self.registry)
        about = "Questions that are no pair, and looks that failed."
        self._failures = Counter("qinglan_shadow_failures", about, ["reason"], registry=self.registry)
        for reason in get_args(FailureReason):
            self._failures.labels(reason)

    def begin(self, canary: str, stable: str) -> None:
        for outcome in get_args(PairOutcome):
            self._pairs.labels(canary, stable, outcome)

    def pair(self, canary: str, stable: str, outcome: PairOutcome) -> None:
        self._pairs.labels(canary, stable, outcome).inc()

    def failed(self, reason: FailureReason, count: int = 1) -> None:
        self._failures.labels(reason).inc(count)


class PairFailure(Exception):
    """Raised if a question could not be compared, with the reason; the question counts for neither model."""

    def __init__(self, reason: FailureReason, why: str = "") -> None:
        super().__init__(why or reason)
        self.reason = reason
