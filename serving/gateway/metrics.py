"""Metrics of the gateway, for Prometheus and for its report."""

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.registry import Collector

from qinglan.llm.budget import Budget


class Metrics:
    """Metrics of one gateway, in a separate Prometheus registry."""

    def __init__(self, budget: Budget, *collectors: Collector) -> None:
        self._registry = CollectorRegistry()
        for collector in collectors:
            self._registry.register(collector)
        self._calls = Counter("qinglan_calls", "Calls by outcome.", ["role", "outcome"], registry=self._registry)
        self._attempts = Counter("qinglan_attempts", "Paid requests sent.", ["role"], registry=self._registry)
        self._retrievals = Counter("qinglan_retrievals", "Retrievals.", ["outcome"], registry=self._registry)
        self.under_way = Gauge(
            "qinglan_calls_under_way", "Paid requests without an answer yet.", registry=self._registry
        )
        spent = Gauge("qinglan_money_spent", "In the currency of the prices.", registry=self._registry)
        spent.set_function(lambda: budget.spent)
        reserved = Gauge("qinglan_money_reserved", "For paid requests under way.", registry=self._registry)
        reserved.set_function(lambda: budget.reserved)
        self._retrieved = {"hit": 0, "miss": 0, "failed": 0}

    def call(self, role: str, outcome: str) -> None:
        self._calls.labels(role, outcome).inc()

    def attempt(self, role: str) -> None:
        self._attempts.labels(role).inc()

    def retrieval(self, outcome: str) -> None:
        self._retrievals.labels(outcome).inc()
        self._retrieved[outcome] += 1

    def retrievals(self) -> dict[str, float]:
        """Return hits, misses and hit rate of the retrievals since this gateway started."""
        hits, misses = self._retrieved["hit"], self._retrieved["miss"]
        total = hits + misses
        return {
            "retrieval_hits": hits,
            "retrieval_misses": misses,
            "retrieval_hit_rate": hits / total if total else 0.0,
        }

    def text(self) -> bytes:
        return generate_latest(self._registry)
