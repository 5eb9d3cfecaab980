"""Turns the raw counters of the servers at two moments into counts of one model version, check by check.

The counters come from Prometheus, or from the /metrics page of a server.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from serving.rollout.sequential import Count
from serving.rollout.spec import Check, CheckName

SERVERS = ("qinglan_rewriter", "qinglan_style")
"""The servers of models. Their counters have the same names; a model version belongs to one of the two."""

SERVED = (
    "requests_total", "seconds_bucket", "seconds_count", "questions_total", "fallbacks_total",
    "written_tokens_bucket", "written_tokens_count",
)  # fmt: skip
SERIES_NAMES = (
    *(f"{server}_{counter}" for server in SERVERS for counter in SERVED), "qinglan_rag_requests_total",
    "qinglan_rag_zero_hits_total", "qinglan_shadow_pairs_total",
)  # fmt: skip
"""All series that a check reads."""

FAILED_OUTCOMES = frozenset({"failed", "late", "busy", "refused"})
"""The outcomes that count against a model. A refused question may be the caller's fault, but then both models refuse
it alike; a canary that refuses questions that the stable model answers is worse. Questions that are too large or
whose caller disconnected have other outcomes, and count for neither.
"""

Labels = frozenset[tuple[str, str]]


class Series(NamedTuple):
    """One counter of one process, its name with `_total` or `_bucket`."""

    name: str
    labels: Labels

    def label(self, name: str) -> str:
        return dict(self.labels).get(name, "")


Counters = Mapping[Series, float]


def make_series(name: str, labels: Mapping[str, str]) -> Series:
    return Series(name, frozenset(labels.items()))


def counter_increases(before: Counters, after: Counters) -> Counters:
    """The increase of each counter; one that is new counts from 0."""
    increases = {}
    for series, value in after.items():
        start = before.get(series, 0.0)
        # A counter never falls: a lower value means that its process was started again and counts from 0.
        restarted = start > value
        increases[series] = value if restarted else value - start
    return increases


def counts_by_check(increases: Counters, version: str, other: str, checks: Iterable[Check]) -> dict[str, Count]:
    """The version's counts of each check, and always of `errors`; `other` is the version that it is compared with."""
    counts = {"errors": _errors(increases, version, other, None)}
    return counts | {check.name: COUNT_FUNCTIONS[check.name](increases, version, other, check) for check in checks}


def _errors(increases: Counters, version: str, _: str, __: Check | None) -> Count:
    def requests(outcome: str) -> float:
        names = _series_names("requests_total")
        return sum(_sum(increases, name, version=version, outcome=outcome) for name in names)

    failed = sum(map(requests, FAILED_OUTCOMES))
    return Count(requests("answered") + failed, failed)


def _fallbacks(increases: Counters, version: str, _: str, __: Check) -> Count:
    return Count(
        _sum(increases, "qinglan_rewriter_questions_total", version=version),
        _sum(increases, "qinglan_rewriter_fallbacks_total", version=version),
    )


def _zero_hits(increases: Counters, version: str, _: str, __: Check) -> Count:
    return Count(
        _sum(increases, "qinglan_rag_requests_total", rewriter=version, status="200"),
        _sum(increases, "qinglan_rag_zero_hits_total", rewriter=version),
    )


def _quality(increases: Counters, version: str, other: str, _: Check) -> Count:
    """Untied shadow pairs, and how many of them the canary lost; the stable model has no counts of its own."""
    won, lost = (
        _sum(increases, "qinglan_shadow_pairs_total", canary=version, stable=other, outcome=outcome)
        for outcome in ("won", "lost")
    )
    return Count(won + lost, lost)


COUNT_FUNCTIONS: Mapping[CheckName, Callable[[Counters, str, str, Check], Count]] = {
    "errors": _errors,
    "slow": lambda increases, version, _, check: _count_above(increases, version, "seconds", check.seconds or 1.0),
    "fallbacks": _fallbacks,
    "zero_hits": _zero_hits,
    # Tokens written for one question; a text that a guard replaced counts, too.
    "costly": lambda increases, version, _, check: _count_above(
        increases, version, "written_tokens", check.tokens or 32
    ),
    "quality": _quality,
}


def _count_above(increases: Counters, version: str, histogram: str, limit: float) -> Count:
    """Observations above the limit. If it is between two bounds of the histogram, the lower bound is used."""
    within: dict[float, float] = {}
    for series, value in increases.items():
        if series.name in _series_names(f"{histogram}_bucket") and series.label("version") == version:
            bound = float(series.label("le"))
            within[bound] = within.get(bound, 0.0) + value
    lower = max((bound for bound in within if bound <= limit), default=0.0)
    total = sum(_sum(increases, name, version=version) for name in _series_names(f"{histogram}_count"))
    return Count(total, total - within.get(lower, 0.0))


def _series_names(counter: str) -> tuple[str, ...]:
    return tuple(f"{server}_{counter}" for server in SERVERS)


def _sum(increases: Counters, name: str, **labels: str) -> float:
    required = set(labels.items())
    return sum(value for series, value in increases.items() if series.name == name and required <= series.labels)
