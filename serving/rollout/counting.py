"""What the servers count, as the checks read it: from raw counters at two moments to counts of one model version.

Prometheus answers such series, and so does any server's own /metrics.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from serving.rollout.sequential import Count
from serving.rollout.spec import Check, CheckName

FAMILIES = ("qinglan_rewriter_", "qinglan_rag_", "qinglan_shadow_")
"""What the names of all series that are read begin with."""

FAULTS = frozenset({"failed", "late", "busy"})
"""Outcomes that are the server's doing; a wrong question, or a caller who went away, says nothing of the model."""

Labels = frozenset[tuple[str, str]]


class Series(NamedTuple):
    """One counter of one process, its name with `_total` or `_bucket`."""

    name: str
    labels: Labels

    def label(self, name: str) -> str:
        return dict(self.labels).get(name, "")


Counters = Mapping[Series, float]


def series(name: str, labels: Mapping[str, str]) -> Series:
    return Series(name, frozenset(labels.items()))


def grown(before: Counters, after: Counters) -> Counters:
    """How much each has counted: one that is new, or begins anew since its process did, from nothing."""
    return {one: value - (was if (was := before.get(one, 0.0)) <= value else 0.0) for one, value in after.items()}


def counted(growth: Counters, version: str, other: str, checks: Iterable[Check]) -> dict[str, Count]:
    """By check, of the version; `other` is what it is paired with. `errors` is always there."""
    found = {"errors": _errors(growth, version, other, None)}
    return found | {check.name: COUNTERS[check.name](growth, version, other, check) for check in checks}


def bounds(counters: Counters) -> set[float]:
    """The seconds that the servers' latencies can be asked about."""
    return {float(one.label("le")) for one in counters if one.name == "qinglan_rewriter_seconds_bucket"}


def _errors(growth: Counters, version: str, _: str, __: Check | None) -> Count:
    def of(*outcomes: str) -> float:
        return sum(_sum(growth, "qinglan_rewriter_requests_total", version=version, outcome=one) for one in outcomes)

    failed = of(*FAULTS)
    return Count(of("answered") + failed, failed)


def _slow(growth: Counters, version: str, _: str, check: Check) -> Count:
    """More than so many seconds; between two bounds of the histogram the lower one counts, to be strict."""
    name, seconds = "qinglan_rewriter_seconds_bucket", check.seconds or 1.0
    lower = max((bound for bound in bounds(growth) if bound <= seconds), default=0.0)
    every = _sum(growth, "qinglan_rewriter_seconds_count", version=version)
    fast = sum(
        value
        for one, value in growth.items()
        if one.name == name and one.label("version") == version and float(one.label("le")) == lower
    )
    return Count(every, every - fast)


def _fallbacks(growth: Counters, version: str, _: str, __: Check) -> Count:
    return Count(
        _sum(growth, "qinglan_rewriter_questions_total", version=version),
        _sum(growth, "qinglan_rewriter_fallbacks_total", version=version),
    )


def _zero_hits(growth: Counters, version: str, _: str, __: Check) -> Count:
    return Count(
        _sum(growth, "qinglan_rag_requests_total", rewriter=version, status="200"),
        _sum(growth, "qinglan_rag_zero_hits_total", rewriter=version),
    )


def _quality(growth: Counters, version: str, other: str, _: Check) -> Count:
    """Untied shadow pairs, and those that the canary lost; the stable side has none of its own."""
    won, lost = (
        _sum(growth, "qinglan_shadow_pairs_total", canary=version, stable=other, outcome=how)
        for how in ("won", "lost")
    )
    return Count(won + lost, lost)


COUNTERS: Mapping[CheckName, Callable[[Counters, str, str, Check], Count]] = {
    "errors": _errors,
    "slow": _slow,
    "fallbacks": _fallbacks,
    "zero_hits": _zero_hits,
    "quality": _quality,
}


def _sum(growth: Counters, name: str, **labels: str) -> float:
    wanted = set(labels.items())
    return sum(value for one, value in growth.items() if one.name == name and wanted <= one.labels)
