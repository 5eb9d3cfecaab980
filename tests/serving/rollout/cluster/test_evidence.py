"""Counts from answers of Prometheus: the parts that need no Prometheus."""

from math import inf, nan

from serving.rollout.check_counts import make_series
from serving.rollout.cluster.evidence import collect_scrapes, window_growth
from serving.rollout.cluster.prometheus import Sample, ScrapedSeries

NAME = "qinglan_rewriter_requests_total"
LABELS = {"version": "c" * 12, "outcome": "answered"}


def test_a_sample_that_is_no_number_is_passed_over_and_nothing_is_lost() -> None:
    values = (100.0, nan, 104.0, inf, 109.0)
    samples = tuple(Sample(at, value) for at, value in zip((0.0, 15.0, 30.0, 45.0, 60.0), values, strict=True))
    result = collect_scrapes([ScrapedSeries({"__name__": NAME, "pod": "a", **LABELS}, samples)])

    assert window_growth(result, 0.0, 60.0) == {make_series(NAME, LABELS): 9.0}
    assert window_growth(result, 15.0, 60.0) == {make_series(NAME, LABELS): 9.0}, (
        "what came after the bad one is in the window"
    )
