"""A compiled graph says on KFP's page what each step, input, output and figure is, and what was set."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from components.step_figures import MOST
from pipelines.graph.compiler import golden_targets
from pipelines.lines.all_lines import LINES
from tests.pipelines.graph.compiled_graphs import GOLDENS, compiled

MADE_BY_KFP = "pipelinechannel--"
"""The beginning of the names by which KFP's compiler hands values into a branch."""


def spec(name: str) -> Any:
    return compiled(name).spec


def definitions(name: str) -> Iterator[tuple[str, str]]:
    """The path of each parameter of a run, and of each output of its steps, and its description."""
    described = {name: component.get("outputDefinitions", {}) for name, component in spec(name)["components"].items()}
    for component, kinds in {**described, "root": spec(name)["root"]["inputDefinitions"]}.items():
        for kind, items in kinds.items():
            for item, definition in items.items():
                if not item.startswith(MADE_BY_KFP):
                    yield f"{component}.{kind}.{item}", definition.get("description", "")


@pytest.mark.parametrize("name", GOLDENS)
def test_every_parameter_of_a_run_and_every_output_has_a_description(name: str) -> None:
    described = dict(definitions(name))

    assert len(described) > 30
    assert [path for path, about in described.items() if len(about) < 10] == []


@pytest.mark.parametrize("target", golden_targets(), ids=lambda target: target.name)
def test_the_graphs_description_has_each_steps_and_each_parameters(target: Any) -> None:
    about = spec(target.name)["pipelineInfo"]["description"].splitlines()
    parameters = spec(target.name)["root"]["inputDefinitions"]["parameters"]
    steps = {name: target.line.stages[name].load_component().description for name in target.config.stages()}

    assert len(steps) >= 9
    assert [name for name, step in steps.items() if len(step) < 20 or f"- `{name}`: {step}" not in about] == []
    described = {name: parameter["description"] for name, parameter in parameters.items()}
    assert [name for name, text in described.items() if f"- `{name}`: {text}" not in about] == []


@pytest.mark.parametrize("name", GOLDENS)
def test_what_a_run_is_given_is_imported_by_a_task_an_output_and_an_artifact_of_its_name(name: str) -> None:
    line = LINES[name.partition(".")[0]]
    executors = spec(name)["deploymentSpec"]["executors"]

    for item in line.inputs:
        task = item.replace("_", "-")
        # KFP 2.17 records an importer by its display name, and finds it by its task's: they are the same.
        assert spec(name)["root"]["dag"]["tasks"][task]["taskInfo"]["name"] == task
        assert set(spec(name)["components"][f"comp-{task}"]["outputDefinitions"]["artifacts"]) == {item}
        assert executors[f"exec-{task}"]["importer"]["metadata"] == {"display_name": item}


@pytest.mark.parametrize("name", GOLDENS)
def test_the_summary_stands_first_among_what_an_evaluation_makes(name: str) -> None:
    """KFP's page (StaticFlow.ts, dagre) draws what no step takes from left to right against the alphabet."""
    evaluations = [label for label in spec(name)["components"] if label.startswith("comp-evaluate")]

    assert evaluations
    for label in evaluations:
        assert max(spec(name)["components"][label]["outputDefinitions"]["artifacts"]) == "summary"


def figures_of_stages() -> Iterator[tuple[str, Any]]:
    """Each stage with a Metrics output, and the module that names its figures."""
    for line in LINES.values():
        for name, stage in line.stages.items():
            outputs = stage.load_component().component_spec.outputs
            if [output for output in outputs.values() if output.type.startswith("system.Metrics@")]:
                module = "distil" if name == "distil" else "stage"
                yield name, importlib.import_module(f"{stage.folder}.{module}")


def test_each_steps_metrics_are_named_after_it_and_are_ten_at_most() -> None:
    stages = dict(figures_of_stages())

    assert {"generate", "convert", "evaluate", "evaluate_small", "ppo", "distil"} <= set(stages)
    for name, module in stages.items():
        assert 0 < len(module.FIGURES) <= MOST, name
        assert len(set(module.FIGURES.values())) == len(module.FIGURES), name
    for line in LINES.values():
        for name, stage in line.stages.items():
            outputs = stage.load_component().component_spec.outputs
            names = [key for key, output in outputs.items() if output.type.startswith("system.Metrics@")]
            expected = {"evaluate": "evaluation", "evaluate_small": "small_evaluation"}.get(name, name)
            assert names in ([], [f"{expected}_metrics"])


@pytest.mark.parametrize(
    ("module", "counts"),
    [
        ("components.data.generate.stage", "GenerateCounts"),
        ("components.data.validate.stage", "ValidateCounts"),
        ("components.data.convert.stage", "ConvertCounts"),
        ("components.data.style.stage", "PreparedCounts"),
        ("components.training.base.stage", "BaseCounts"),
        ("components.training.sft.stage", "SftCounts"),
        ("components.training.ppo.stage", "PpoCounts"),
        ("components.training.style.stage", "StyleCounts"),
        ("components.training.style.distil", "DistilCounts"),
    ],
)
def test_a_figure_with_a_name_is_one_that_its_stage_counts(module: str, counts: str) -> None:
    stage = importlib.import_module(module)

    assert set(stage.FIGURES) <= set(getattr(stage, counts)._fields)


def test_a_steps_log_has_no_line_for_each_http_request() -> None:
    script = (
        "import logging; logging.basicConfig(level=logging.INFO); import components.data.convert.component; "
        "print([logging.getLogger(it).isEnabledFor(20) for it in ('httpx', 'httpx2', 'stamina', 'kfp')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "_KFP_RUNTIME": "true"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip

    assert done.stdout.strip() == "[False, False, False, True]"
