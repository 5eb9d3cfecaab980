"""Rules and dashboard ask for what our servers count, by names and labels that those servers really write."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import orjson
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from qinglan.live.alarms import Alarm
from qinglan.llm.budget import Budget
from serving.gateway.metrics import Metrics as GatewayMetrics
from serving.gateway.trainings import Trainings
from serving.rag.metrics import Metrics as RagMetrics
from serving.rewriter.metrics import Metrics as RewriterMetrics
from serving.rollout.cluster.metrics import ControllerStatus
from serving.rollout.cluster.metrics import Metrics as RolloutMetrics
from serving.rollout.shadow.metrics import Metrics as ShadowMetrics
from serving.style.metrics import Metrics as StyleMetrics
from tests.manifests.manifest_objects import MANIFESTS, objects
from tests.models.silent_training import silent_training

DASHBOARD = orjson.loads((MANIFESTS / "monitoring/dashboard.json").read_bytes())
RULES = objects(MANIFESTS / "monitoring/rules.yaml")[0]["spec"]["groups"]
OF_PROMETHEUS = {"up"}
INPUTS = {"namespace", "pod", "job", "le"}
"""Labels that Prometheus itself puts on a series."""

NAME = re.compile(r"(?<![\w:$])(?:qinglan|request|vllm|up)[\w:]*(?![\w:(])")
SELECTED = re.compile(r"([a-z_][\w:]*)\{([^}]*)\}")
GROUPED = re.compile(r"(?:by|on) \(([^)]*)\)")


@cache
def exposed() -> dict[str, set[str]]:
    """Every series of ours, with its labels, as a scrape reads it after each thing happened once."""
    return {
        sample.name: set(sample.labels)
        for text in (gateway(), rag(), style(), rewriter(), shadow(), rollout(), kserves())
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def gateway() -> str:
    live, trainings = silent_training("sft"), Trainings()
    live.step({"step": 1, "loss": 1.0}, 2)
    live.check([Alarm("not-a-number", "stop", "loss is nan.")])
    trainings.take(live.snapshot(0.0).model_dump_json().encode())
    metrics = GatewayMetrics(Budget(1.0, 0.0), trainings)
    metrics.call("judge", "answered")
    metrics.attempt("judge")
    metrics.retrieval("hit")
    return metrics.text().decode()


def rag() -> str:
    metrics = RagMetrics()
    metrics.answered("demo", "abc", 0.1, 0)
    metrics.fell_back("demo", "timeout")
    metrics.watch_rewriter(lambda: 1.0, lambda: False)
    metrics.rewritten("demo", cached=True, cache_open=True)
    metrics.content_checked("demo", "passed", 0.1)
    metrics.reranked("demo", "local", "timeout", 0.1)
    metrics.engine_away("timeout")
    return metrics.text().decode()


def style() -> str:
    registry = CollectorRegistry()
    metrics = StyleMetrics("abc", lambda: 0, registry)
    metrics.ended("v1", 200, 0.1)
    metrics.answered(["label"], 0)
    return generate_latest(registry).decode()


def rewriter() -> str:
    registry = CollectorRegistry()
    RewriterMetrics("abc", ["demo"], lambda: 0, registry)
    return generate_latest(registry).decode()


def shadow() -> str:
    metrics = ShadowMetrics()
    metrics.begin("abc", "def")
    return generate_latest(metrics.registry).decode()


def rollout() -> str:
    standing = ControllerStatus({"Analyse": 1}, 1, True, 0.0, {"GET pods": 1})
    return generate_latest(RolloutMetrics(lambda: standing).registry).decode()


def kserves() -> str:
    """KServe's own metrics of a model, after a prediction."""
    from kserve.metrics import PREDICT_HIST_TIME, get_labels

    PREDICT_HIST_TIME.labels(**get_labels("rewriter")).observe(0.1)
    registry = CollectorRegistry()
    registry.register(PREDICT_HIST_TIME)
    return generate_latest(registry).decode()


def expressions() -> Iterator[tuple[str, str]]:
    for group in RULES:
        for rule in group["rules"]:
            yield rule.get("record") or rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for number, target in enumerate(panel.get("targets") or ()):
            yield f"{panel['title']} {number}", target["expr"]


def names(expression: str) -> set[str]:
    """The series in it; what stands in quotes is none."""
    return set(NAME.findall(re.sub(r'"[^"]*"', "", expression)))


ALL = dict(expressions())
RECORDED = {rule["record"] for group in RULES for rule in group["rules"] if "record" in rule}


@pytest.mark.parametrize("name", ALL)
def test_every_series_that_is_asked_for_is_exposed(name: str) -> None:
    requested = names(ALL[name])

    assert requested
    assert requested - RECORDED - OF_PROMETHEUS <= set(exposed())


@pytest.mark.parametrize("name", ALL)
def test_every_label_that_is_asked_for_is_on_the_series(name: str) -> None:
    known = exposed()
    for series, text in SELECTED.findall(ALL[name]):
        labels = {item.strip() for item in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", text)}
        assert labels <= known.get(series, set()) | INPUTS, series
    grouped = {part.strip() for text in GROUPED.findall(ALL[name]) for part in text.split(",") if part.strip()}
    assert grouped <= INPUTS.union(*(known.get(series, set()) for series in names(ALL[name])), {"tenant"})


def test_every_alert_says_what_to_do_next() -> None:
    alerts = [rule for group in RULES for rule in group["rules"] if "alert" in rule]

    assert len(alerts) >= 8
    assert all(rule["annotations"]["summary"] and rule["annotations"]["next"] for rule in alerts)
    assert {rule["labels"]["severity"] for rule in alerts} == {"page", "ticket"}


def test_every_alert_is_tested_by_an_example_that_fires_and_one_that_does_not() -> None:
    tests: list[Any] = objects(MANIFESTS / "monitoring/rules_test.yaml")[0]["tests"]
    cases = [case for test in tests for case in test.get("alert_rule_test", ())]
    alerts = {rule["alert"] for group in RULES for rule in group["rules"] if "alert" in rule}

    assert {case["alertname"] for case in cases if case["exp_alerts"]} == alerts


def test_the_dashboard_shows_every_series_of_ours_but_its_parts() -> None:
    shown = names(" ".join(ALL.values()))
    own_part = {name for name in exposed() if name.startswith("qinglan")}
    parts = {name for name in own_part if name.endswith(("_created", "_sum", "_count", "_bucket"))}

    assert own_part - parts <= shown
