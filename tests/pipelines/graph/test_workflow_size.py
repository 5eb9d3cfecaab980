"""KFP shows a run to its end: the finished workflow of every graph stays below the size that Argo compresses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from pipelines.graph.compiler import (
    COMPILED,
    CompileTarget,
    compile_targets,
    image_names,
    rewriter_target,
    style_target,
)
from pipelines.graph.workflow_size import ARGO_LIMIT, METADATA, size_note, workflow_bytes
from pipelines.lines.config import CONFIGS
from qinglan.config import load_yaml
from qinglan.lineage.steps.record import recorded
from tests.releases.kfp_artifacts import File
from tests.screens.graph_yaml import DUMPER, LOADER

GOLDENS = sorted(COMPILED.glob("*.yaml"))
HEADROOM = 0.99
"""The share of Argo's limit for the largest graph: the style line with both rollouts, its images by digest."""


def documents(path: Path) -> tuple[Any, Any]:
    spec, platform = yaml.load_all(path.read_bytes(), Loader=LOADER)
    return spec, platform


def step_metadata(folder: Path) -> dict[str, Any]:
    """The metadata that a step of many facts and a long address gives its output."""
    source, made, lineage = (File(str(folder / f"{'long' * 20}-{name}")) for name in ("in", "out", "lineage"))
    Path(source.path).write_text("问题\n")
    with recorded("generate", {"questions": source}, {"rewrites": made}, {"seed": 1}, lineage) as step:
        Path(made.path).write_text("改写\n" * 100)
        step.facts.update({f"fact_{number}": number / 3 for number in range(30)})
    return made.metadata


def largest_targets(folder: Path) -> Iterator[CompileTarget]:
    """Each line with all its steps: what passes is deployed too, and KFP's cache may answer."""
    place = {"namespace": "qinglan", "store": "s3://qinglan/fivedoctors"}
    style = load_yaml(CONFIGS / "style/a100.yaml") | {"deploy": place, "deploy_small": place}
    rewriter = load_yaml(CONFIGS / "fivedoctors/gpt.yaml") | {"training": "a100x8-full", "deploy": place}
    rewriter["cluster"] = {"immutable_inputs": True}
    for name, settings in (("style", style), ("rewriter", rewriter)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(settings))
    yield style_target(str(folder / "style.yaml"))
    yield rewriter_target("fivedoctors", str(folder / "rewriter.yaml"))


def test_a_step_gives_its_artifacts_no_more_metadata_than_is_counted(tmp_path: Path) -> None:
    metadata = step_metadata(tmp_path)

    assert set(metadata) == set(METADATA)
    assert len(orjson.dumps(metadata)) <= len(orjson.dumps(METADATA))


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_a_graph_without_a_rollout_leaves_room_for_attempts_that_fail(path: Path) -> None:
    assert workflow_bytes(*documents(path)) < 0.88 * ARGO_LIMIT


@pytest.mark.slow
def test_the_largest_release_of_each_line_is_shown_to_its_end(tmp_path: Path) -> None:
    images = {name: f"registry.example.com/team/{name}@sha256:{'a1' * 32}" for name in image_names()}

    for path in compile_targets(largest_targets(tmp_path), tmp_path / "out", images):
        assert "deploy" in path.read_text(encoding="utf-8")
        assert workflow_bytes(*documents(path)) < HEADROOM * ARGO_LIMIT, path.name


def test_each_byte_of_metadata_counts_for_every_input_in_six_nodes() -> None:
    spec, platform = documents(COMPILED / "rewriter.laptop.yaml")
    executors = spec["deploymentSpec"]["executors"]
    inputs = sum(
        len(component["inputDefinitions"]["artifacts"])
        for component in spec["components"].values()
        if "container" in executors.get(component.get("executorLabel"), {})
    )

    longer = workflow_bytes(spec, platform, METADATA | {"sha256": "0" * 74}) - workflow_bytes(spec, platform)

    assert longer == 10 * 6 * inputs


@pytest.mark.slow
def test_a_graph_with_too_long_settings_is_named() -> None:
    text = (COMPILED / "rewriter.laptop.yaml").read_text(encoding="utf-8")
    spec, platform = yaml.load_all(text, Loader=LOADER)
    task = spec["root"]["dag"]["tasks"]["generate"]
    task["inputs"]["parameters"]["config"]["runtimeValue"]["constant"]["system_prompt"] = "长" * 8000

    assert size_note(text) == ""
    assert "KFP's list of tasks stops at 1,048,576" in size_note(yaml.dump_all([spec, platform], Dumper=DUMPER))
