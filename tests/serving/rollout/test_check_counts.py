"""From raw counters to counts, with the very names that the servers count by."""

from math import isnan, nan

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from serving.rag.metrics import Metrics as RagMetrics
from serving.rewriter.metrics import Metrics
from serving.rollout.check_counts import Series, counter_increases, counts_by_check, make_series
from serving.rollout.sequential import Count
from serving.rollout.spec import Check, default_checks
from serving.style.metrics import Metrics as StyleMetrics


def read(text: str) -> dict[Series, float]:
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {make_series(sample.name, sample.labels): sample.value for sample in samples}


def server(registry: CollectorRegistry, version: str) -> Metrics:
    return Metrics(version, ["fivedoctors"], lambda: 0, registry)


def test_each_check_reads_what_the_servers_count() -> None:
    pods = [CollectorRegistry(), CollectorRegistry()]
    canary, stable = server(pods[0], "c" * 12), server(pods[1], "5" * 12)
    for seconds in (0.1, 0.6, 0.9, 1.2):
        canary.ended("v1", "answered", seconds)
    for how in ("failed", "late", "busy", "refused", "hung_up", "too_large"):
        canary.ended("openai", how, 9.0)
    canary.answered("fivedoctors", ["cut", "too_long"], 1, 33)
    canary.answered("fivedoctors", [], 99, 32)
    stable.ended("v1", "answered", 0.1)
    rag = RagMetrics()
    for hits in (0, 3, 4):
        rag.answered("fivedoctors", "c" * 12, 0.1, hits)
    pairs = 'qinglan_shadow_pairs_total{canary="cccccccccccc",stable="555555555555",outcome="%s"} %d\n'
    shadow = "".join(pairs % item for item in (("won", 5), ("lost", 2), ("tied", 9)))

    counters: dict[Series, float] = {}
    for text in (*(generate_latest(pod).decode() for pod in pods), rag.text().decode(), shadow):
        counters |= read(text)

    assert counts_by_check(counters, "c" * 12, "5" * 12, default_checks(shadowed=True)) == {
        "errors": Count(8, 4),
        "slow": Count(4, 1),
        "fallbacks": Count(2, 1),
        "zero_hits": Count(3, 1),
        "costly": Count(2, 1),
        "quality": Count(7, 2),
    }
    assert counts_by_check(counters, "5" * 12, "c" * 12, [])["errors"] == Count(1, 0)


def test_a_counter_that_was_no_number_has_grown_by_none() -> None:
    item = make_series("qinglan_rewriter_requests_total", {"version": "c"})

    assert isnan(counter_increases({item: nan}, {item: 5018.0})[item])


def test_between_two_bounds_of_the_histogram_the_lower_one_counts() -> None:
    registry = CollectorRegistry()
    canary = server(registry, "c" * 12)
    canary.ended("v1", "answered", 0.7)
    canary.answered("fivedoctors", [], 1, 50)
    counters = read(generate_latest(registry).decode())

    def failed(check: Check) -> Count:
        return counts_by_check(counters, "c" * 12, "", [check])[check.name]

    slow = [failed(Check(name="slow", margin=0.1, seconds=seconds)) for seconds in (0.74, 0.75)]
    costly = [failed(Check(name="costly", margin=0.1, tokens=tokens)) for tokens in (8, 63, 64)]
    assert slow == [Count(1, 1), Count(1, 0)]
    assert costly == [Count(1, 1), Count(1, 1), Count(1, 0)]


def test_a_server_that_counts_no_tokens_a_question_is_no_data_and_not_cheap() -> None:
    registry = CollectorRegistry()
    server(registry, "c" * 12).answered("fivedoctors", [], 1, 50)
    counters = read(generate_latest(registry).decode())
    older = {item: value for item, value in counters.items() if "written_tokens" not in item.name}

    assert len(older) < len(counters)
    assert counts_by_check(older, "c" * 12, "", [Check(name="costly", margin=0.1, tokens=32)])["costly"] == Count(
        0, 0
    )


def test_a_process_that_begins_anew_counts_from_nothing() -> None:
    item, two, three = (make_series("qinglan_rewriter_requests_total", {"pod": pod}) for pod in "abc")

    assert counter_increases({item: 10.0, two: 5.0}, {item: 4.0, two: 7.0, three: 3.0}) == {
        item: 4.0,
        two: 2.0,
        three: 3.0,
    }


def test_a_style_model_is_read_by_what_its_server_counts() -> None:
    registry = CollectorRegistry()
    canary = StyleMetrics("c" * 12, lambda: 0, registry)
    for status, seconds in ((200, 0.1), (200, 0.4), (429, 0.0), (500, 0.1), (400, 0.1)):
        canary.ended("v1", status, seconds)
    checks = [Check(name="errors", margin=0.01), Check(name="slow", margin=0.05, seconds=0.25)]

    counts = counts_by_check(read(generate_latest(registry).decode()), "c" * 12, "5" * 12, checks)

    assert counts == {"errors": Count(5, 3), "slow": Count(2, 1)}
