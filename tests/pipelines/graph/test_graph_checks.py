"""Rules of a compiled graph, each shown by a graph that breaks it."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.graph.checks import check_compiled
from pipelines.graph.compiler import COMPILED
from tests.screens.graph_yaml import DUMPER, LOADER

Spec = dict[str, Any]
Change = Callable[[Spec, Spec], None]


@cache
def golden(name: str) -> str:
    return (COMPILED / f"{name}.yaml").read_text(encoding="utf-8")


def changed(change: Change, name: str = "style.a100") -> str:
    """A golden copy that somebody has changed: its steps, and what Kubernetes is told of them."""
    spec, platform = yaml.load_all(golden(name), Loader=LOADER)
    change(spec, platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"])
    return yaml.dump_all([spec, platform], allow_unicode=True, Dumper=DUMPER)


def container(spec: Spec, step: str = "style") -> Spec:
    result: Spec = spec["deploymentSpec"]["executors"][f"exec-{step}"]["container"]
    return result


def task(spec: Spec, name: str) -> Spec:
    branch = spec["components"]["comp-condition-1"]["dag"]["tasks"]
    result: Spec = {**spec["root"]["dag"]["tasks"], **branch}[name]
    return result


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(COMPILED.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_compiled_graph_without_image_digests_is_no_release(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    executors = next(yaml.load_all(text, Loader=LOADER))["deploymentSpec"]["executors"].values()
    steps = sum("container" in executor for executor in executors)
    released = re.sub(r"(qinglan/[a-z-]+):0\.1\.0", rf"\1@sha256:{'0' * 64}", text)

    assert len([finding for finding in check_compiled(text, release=True) if "has no digest" in finding]) == steps
    assert check_compiled(released, release=True) == []


BREAKS: dict[str, tuple[Change, str]] = {
    "a long argument": (
        lambda spec, _: container(spec, "prepare")["args"].append("长" * 40_000),
        "exec-prepare: an argument has 120,000 bytes",
    ),
    "a long constant": (
        lambda spec, _: task(spec, "prepare")["inputs"]["parameters"]["config"]["runtimeValue"].update(
            constant={"labels": ["长" * 40_000]}
        ),
        "exec-prepare: an argument has 120,0",
    ),
    "a cached tag": (
        lambda spec, _: task(spec, "prepare").update(cachingOptions={"enableCache": True}),
        "exec-prepare: prepare is cached by image qinglan/",
    ),
    "a cached release": (
        lambda spec, _: task(spec, "register-style").update(cachingOptions={"enableCache": True}),
        "exec-register-style: register-style acts outside of the run",
    ),
    "a cached launch": (
        lambda spec, _: (
            spec["components"]["comp-prepare"].update(taskConfigPassthroughs=[{"field": "RESOURCES"}]),
            task(spec, "prepare").update(cachingOptions={"enableCache": True}),
        )[0],
        "exec-prepare: prepare acts outside of the run",
    ),
    "no image": (
        lambda spec, _: container(spec, "prepare").pop("image"),
        "exec-prepare: there is no image",
    ),
    "a secret in the environment": (
        lambda spec, _: container(spec).setdefault("env", []).append({"name": "OPENAI_API_KEY", "value": "x"}),
        "exec-style: OPENAI_API_KEY is written into the graph; take it from a Secret",
    ),
    "a secret parameter": (
        lambda spec, _: spec["root"]["inputDefinitions"]["parameters"].update(
            api_key={"parameterType": "STRING", "description": "The key of the paid API."}
        ),
        "Parameter api_key looks like a secret",
    ),
    "a secret of a step": (
        lambda spec, _: spec["components"]["comp-prepare"]["inputDefinitions"]["parameters"].update(
            store_password={"parameterType": "STRING"}
        ),
        "Parameter store_password looks like a secret",
    ),
    "a key in a setting": (
        lambda spec, _: task(spec, "prepare")["inputs"]["parameters"]["config"]["runtimeValue"].update(
            constant={"note": "sk-" + "abcd1234" * 3}
        ),
        "looks like a key (sk-abc...)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("change", "message"), BREAKS.values(), ids=BREAKS)
def test_a_broken_rule_of_a_graph_is_named_and_no_other(change: Change, message: str) -> None:
    findings = check_compiled(changed(change))

    assert [finding for finding in findings if message in finding]
    assert len(findings) <= 2, findings


@pytest.mark.parametrize(
    ("text", "message"),
    [("foo: [", "No YAML"), ("a: 1\n", "No compiled graph"), ("- 1\n---\n- 2\n", "No compiled graph")],
)
def test_a_text_that_is_no_graph_is_a_finding_not_a_crash(text: str, message: str) -> None:
    [findings] = check_compiled(text)

    assert findings.startswith(message)
