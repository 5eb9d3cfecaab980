"""Convert the increase of the servers' counters between two moments to counts by check for one model version.

The counters come from Prometheus or from the /metrics page of a server.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from serving.rollout.sequential import Count
from serving.rollout.spec import Check

SERVERS = ("qinglan_rewriter", "qinglan_style")
"""Prefixes of the two model servers' metrics. The rest of a counter's name is the same for both servers."""

SERVED = (
    "requests_total", "seconds_bucket", "seconds_count", "questions_total", "fallbacks_total",
    "written_tokens_bucket", "written_tokens_count",
)  # fmt: skip
SERIES_NAMES = (
    *(f"{server}_{counter}" for server in SERVERS for counter in SERVED), "qinglan_rag_requests_total",
    "qinglan_rag_zero_hits_total", "qinglan_shadow_pairs_total",
)  # fmt: skip
"""Names of all series that the checks read."""

FAILED_OUTCOMES = frozenset({"failed", "late", "busy", "refused"})
"""Outcomes that count as failures of a model.

Refused questions count, because a canary that refuses questions that the stable model answers is worse; a bad request
is refused by both models alike. Questions that are too large, or whose caller disconnected, do not count.
"""

Labels = frozenset[tuple[str, str]]


class Series(NamedTuple):
    """Name (with `_total`, `_bucket` or `_count`) and labels of a counter."""

    name: str
    labels: Labels

    def label(self, name: str) -> str:
        return dict(self.labels).get(name, "")


Counters = Mapping[Series, float]


def make_series(name: str, labels: Mapping[str, str]) -> Series:
    return Series(name, frozenset(labels.items()))


def counter_increases(before: Counters, after: Counters) -> Counters:
    """Compute the increase of each counter between two moments; a new counter counts from 0."""
    increases = {}
    for series, value in after.items():
        start = before.get(series, 0.0)
        # A counter never falls: a lower value means that its process was started again and counts from 0.
        restarted = start > value
        increases[series] = value if restarted else value - start
    return increases


def counts_by_check(increases: Counters, version: str, other: str, checks: Iterable[Check]) -> dict[str, Count]:
    """Count the requests and the failures of a model version for each check, and always for `errors`.

    `other` is the version of the other model.
    """
    counts = {"errors": _count_errors(increases, version)}
    return counts | {check.name: _count(increases, version, other, check) for check in checks}


def _count(increases: Counters, version: str, other: str, check: Check) -> Count:
    def total(name: str, **labels: str) -> float:
        return _sum(increases, name, **labels)

    match check.name:
        case "errors":
            return _count_errors(increases, version)
        case "slow":
            return _count_above(increases, version, "seconds", check.seconds or 1.0)
        case "costly":  # tokens written for one question; a text that a guard replaced counts, too
            return _count_above(increases, version, "written_tokens", check.tokens or 32)
        case "fallbacks":
            questions = total("qinglan_rewriter_questions_total", version=version)
            return Count(questions, total("qinglan_rewriter_fallbacks_total", version=version))
        case "zero_hits":
            answers = total("qinglan_rag_requests_total", rewriter=version, status="200")
            return Count(answers, total("qinglan_rag_zero_hits_total", rewriter=version))
        case "quality":  # untied shadow pairs, and the pairs that the canary lost; the stable model has no counts
            pairs = {"canary": version, "stable": other}
            won, lost = (total("qinglan_shadow_pairs_total", outcome=how, **pairs) for how in ("won", "lost"))
            return Count(won + lost, lost)


def _count_errors(increases: Counters, version: str) -> Count:
    def requests(outcome: str) -> float:
        names = _series_names("requests_total")
        return sum(_sum(increases, name, version=version, outcome=outcome) for name in names)

    failed = sum(map(requests, FAILED_OUTCOMES))
    return Count(requests("answered") + failed, failed)


def _count_above(increases: Counters, version: str, histogram: str, limit: float) -> Count:
    """Count all observations, and those above the limit.

    If the limit is between two bounds of the histogram, the lower bound is used.
    """
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
