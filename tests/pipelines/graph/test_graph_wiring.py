"""The graphs are their lines: every artifact reaches the stages that name it, and people are asked for little."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from pipelines.graph.compiler import COMPILED
from pipelines.graph.graph import GraphInputs, partial_graph
from pipelines.lines.all_lines import LINES
from pipelines.lines.config import load_config, load_style_config
from pipelines.lines.line import BEFORE, LINEAGE, Line
from pipelines.lines.rewriter import REWRITER
from pipelines.lines.style import STYLE
from tests.pipelines.graph.compiled_graphs import FETCHING, GOLDENS, ON_GPUS, compiled

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", [name for name in GOLDENS if name.startswith("rewriter")])
def test_the_graph_is_the_thread(name: str) -> None:
    tasks = compiled(name).spec["root"]["dag"]["tasks"]
    parents = {name: sorted(task.get("dependentTasks", [])) for name, task in tasks.items()}

    assert parents == {
        "questions": [],
        "knowledge-base": [],
        "generate": ["questions"],
        "validate": ["generate", "knowledge-base"],
        "label": ["validate"],
        "convert": ["label", "validate"],
        "augment": ["convert", "knowledge-base"],
        "base": ["augment", "convert", "knowledge-base"],
        "sft": ["augment", "base"],
        "ppo": ["augment", "sft"],
        "evaluate": ["augment", "convert", "ppo", "sft"],
        "gate": ["evaluate"],
        "condition-1": ["evaluate", "gate", "ppo"],
    }


@pytest.mark.parametrize("name", [name for name in GOLDENS if name.startswith("style")])
def test_the_style_graph_is_its_line(name: str) -> None:
    tasks = compiled(name).spec["root"]["dag"]["tasks"]
    parents = {name: sorted(task.get("dependentTasks", [])) for name, task in tasks.items()}

    assert parents == {
        "labelled": [],
        "prepare": ["labelled"],
        "text-base": ["prepare"],
        "style": ["prepare", "text-base"],
        "evaluate-style": ["prepare", "style"],
        "gate-style": ["evaluate-style"],
        "condition-1": ["evaluate-style", "gate-style", "prepare", "style"],
    }


@pytest.mark.parametrize("name", GOLDENS)
def test_only_what_the_gate_promotes_goes_on(name: str) -> None:
    gate = "gate" if name.startswith("rewriter") else "gate-style"
    condition = compiled(name).spec["root"]["dag"]["tasks"]["condition-1"]["triggerPolicy"]["condition"]

    assert condition == f"inputs.parameter_values['pipelinechannel--{gate}-Output'] == 'promote'"


@pytest.mark.parametrize("line", LINES.values(), ids=lambda line: line.name)
def test_the_wiring_matches_the_inputs_of_the_components(line: Line) -> None:
    for name, stage in line.stages.items():
        spec = stage.load_component().component_spec
        before = {BEFORE} if name != next(iter(line.stages)) else set()
        assert artifacts(spec.inputs) == {*stage.inputs, *before}
        shown = {item for item, output in spec.outputs.items() if output.type.partition("@")[0] in ON_THE_PAGE}
        assert artifacts(spec.outputs) - shown == {*stage.outputs, LINEAGE}
        assert ("gateway_url" in spec.inputs) is stage.gateway


ON_THE_PAGE = {"system.Markdown", "system.Metrics", "system.ClassificationMetrics"}
"""Outputs for KFP's page alone."""


def artifacts(items: Any) -> set[str]:
    """The names of a component's inputs or outputs that are artifacts."""
    return {name for name, item in items.items() if item.type.startswith("system.")}


def test_the_docs_name_every_parameter_and_every_profile_with_its_gpus() -> None:
    docs = (COMPILED.parents[1] / "docs" / "pipelines.md").read_text(encoding="utf-8")

    for name in GOLDENS:
        parameters = compiled(name).spec["root"]["inputDefinitions"]["parameters"]
        assert all(f"`{parameter}`" in docs for parameter in parameters)
    for name, gpus in ON_GPUS.items():
        line, _, profile = name.partition(".")
        file = f"configs/{'style' if line == 'style' else 'training'}/{profile}.yaml)"
        [row] = [text for text in docs.splitlines() if file in text]
        if name.startswith("rewriter"):
            for stage, column in (("sft", 2), ("ppo", 3)):
                days = int(compiled(name).pod(stage)["activeDeadlineSeconds"]) // (24 * 3600)
                cards = "1 GPU" if gpus[stage] == 1 else f"{gpus[stage]} GPUs"
                assert f"{cards}, up to {days} days" in row.split("|")[column]


@pytest.mark.parametrize("line", [REWRITER, STYLE], ids=lambda line: line.name)
def test_every_stage_can_run_alone(line: Line) -> None:
    rewriter, style = load_config("fivedoctors", "demo"), load_style_config("laptop", labelled=Path("x.json"))
    deploy = {"namespace": "qinglan", "name": "a/b", "store": "s3://qinglan/house"}
    settings = (rewriter if line is REWRITER else style).stages() | {"deploy": deploy, "deploy_small": deploy}
    for name, stage in line.stages.items():
        uris = {artifact: f"/tmp/{artifact}" for artifact in stage.inputs}
        before = {BEFORE: "/tmp/lineage"} if name != next(iter(line.stages)) else {}
        parameters = {"gateway_url": "http://127.0.0.1:1", "release_name": "a/b"}
        graph = partial_graph(line, [name], {**uris, **before}, GraphInputs(settings, parameters))
        assert graph.pipeline_spec.deployment_spec
        (pod,) = MessageToDict(graph.platform_spec)["platforms"]["kubernetes"]["deploymentSpec"]["executors"].values()
        inputs = {key["envVar"] for item in pod["secretAsEnv"] for key in item["keyToEnv"]}
        assert {*FETCHING} <= inputs, "all that it takes is imported"
