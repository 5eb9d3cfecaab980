"""The compiled graph in the repository is the one that the code compiles to, byte for byte."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.compiling import COMPILED
from pipelines.graph import alone
from pipelines.lines import BEFORE, LINES, Line


def test_the_golden_copy_is_fresh_under_any_hash_seed(tmp_path: Path) -> None:
    for seed in ("0", "4242"):
        out = tmp_path / seed
        command = [sys.executable, "-m", "pipelines.compiling", str(out)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed})

        for line in LINES:
            golden = COMPILED / f"{line}.yaml"
            assert (out / golden.name).read_bytes() == golden.read_bytes(), "run `make golden`"


def text(line: str) -> str:
    return (COMPILED / f"{line}.yaml").read_text(encoding="utf-8")


def spec(line: str = "rewriter") -> Any:
    return next(yaml.safe_load_all(text(line)))


def test_the_graph_is_the_thread() -> None:
    tasks = spec()["root"]["dag"]["tasks"]
    parents = {name: sorted(task.get("dependentTasks", [])) for name, task in tasks.items()}

    assert parents == {
        "importer": [],
        "importer-2": [],
        "generate": ["importer"],
        "validate": ["generate", "importer-2"],
        "convert": ["validate"],
        "base": ["convert", "importer-2"],
        "sft": ["base", "convert"],
        "ppo": ["convert", "sft"],
        "evaluate": ["convert", "ppo", "sft"],
        "gate": ["evaluate"],
        "condition-1": ["evaluate", "gate", "ppo"],
    }


def test_the_style_graph_is_its_line() -> None:
    tasks = spec("style")["root"]["dag"]["tasks"]
    parents = {name: sorted(task.get("dependentTasks", [])) for name, task in tasks.items()}

    assert parents == {
        "importer": [],
        "prepare": ["importer"],
        "text-base": ["prepare"],
        "style": ["prepare", "text-base"],
        "evaluate-style": ["prepare", "style"],
        "gate-style": ["evaluate-style"],
        "condition-1": ["evaluate-style", "gate-style", "prepare", "style"],
    }


@pytest.mark.parametrize(("line", "gate"), [("rewriter", "gate"), ("style", "gate-style")])
def test_only_what_the_gate_promotes_goes_on(line: str, gate: str) -> None:
    condition = spec(line)["root"]["dag"]["tasks"]["condition-1"]["triggerPolicy"]["condition"]

    assert condition == f"inputs.parameter_values['pipelinechannel--{gate}-Output'] == 'promote'"


@pytest.mark.parametrize("line", LINES.values(), ids=lambda line: line.name)
def test_what_is_wired_is_what_the_components_take(line: Line) -> None:
    components = import_module(f"pipelines.{line.name}").WIRING.components
    for stage, artifacts in line.thread.items():
        inputs = components[stage].component_spec.inputs
        taken = {BEFORE} if stage != line.stages[0] else set()
        assert {name for name, one in inputs.items() if one.type.startswith("system.")} == {*artifacts, *taken}


@pytest.mark.parametrize("line", LINES)
def test_every_step_gets_the_key_it_signs_with_and_knows_its_run_and_image(line: str) -> None:
    compiled, platform = yaml.safe_load_all(text(line))
    pods = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    steps = [name for name, one in compiled["deploymentSpec"]["executors"].items() if "container" in one]

    assert steps
    for step in steps:
        [secret] = pods[step]["secretAsVolume"]
        assert secret["mountPath"] == "/etc/qinglan/keys"
        assert secret["secretName"] == ("qinglan-release-keys" if "register" in step else "qinglan-builder-key")
        assert {one["name"] for one in pods[step]["fieldPathAsEnv"]} == {"QINGLAN_RUN", "QINGLAN_IMAGE"}
        image = compiled["deploymentSpec"]["executors"][step]["container"]["image"]
        assert pods[step]["podMetadata"]["annotations"] == {"qinglan/image": image}


@pytest.mark.parametrize(
    ("line", "stages"), [("rewriter", ("sft", "ppo", "evaluate")), ("style", ("style", "evaluate-style", "distil"))]
)
def test_gpus_are_asked_for_with_type_and_count_memory_time_and_tolerance(line: str, stages: tuple[str, ...]) -> None:
    compiled, platform = yaml.safe_load_all(text(line))
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]

    for stage in stages:
        asked = compiled["deploymentSpec"]["executors"][f"exec-{stage}"]["container"]["resources"]["accelerator"]
        assert asked["resourceType"] == "nvidia.com/gpu" and asked["resourceCount"]
        pod = executors[f"exec-{stage}"]
        assert pod["emptyDirMounts"] == [{"mountPath": "/dev/shm", "medium": "Memory", "volumeName": "shm"}]
        assert pod["tolerations"][0]["key"] == "nvidia.com/gpu"
        assert int(pod["activeDeadlineSeconds"]) > 3600
        assert pod["nodeSelector"]
    defaults = compiled["root"]["inputDefinitions"]["parameters"]
    assert defaults["gpu_nodes"]["defaultValue"] == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    counts = {"sft_gpus": 4, "ppo_gpus": 4, "evaluate_gpus": 1} if line == "rewriter" else {}
    assert {name: one["defaultValue"] for name, one in defaults.items() if name.endswith("_gpus")} == counts


@pytest.mark.parametrize("line", LINES)
def test_what_a_branch_uses_it_is_given(line: str) -> None:
    branch = spec(line)["components"]["comp-condition-1"]
    used = {
        name
        for task in branch["dag"]["tasks"].values()
        for value in task["inputs"].get("parameters", {}).values()
        if (name := value.get("componentInputParameter"))
    }

    assert used <= set(branch["inputDefinitions"]["parameters"])


@pytest.mark.parametrize("line", LINES)
def test_no_step_installs_anything_or_asks_for_a_key(line: str) -> None:
    assert "pip install" not in text(line)
    assert "api_key" not in text(line).lower()


def test_paid_steps_are_never_answered_from_kfps_cache() -> None:
    tasks = spec()["root"]["dag"]["tasks"]

    for stage in ("generate", "validate", "base", "ppo", "evaluate"):
        assert "enableCache" not in tasks[stage]["cachingOptions"]
    for stage in ("convert", "sft"):
        assert tasks[stage]["cachingOptions"]["enableCache"] is True


@pytest.mark.parametrize("line", LINES.values(), ids=lambda line: line.name)
def test_every_stage_can_run_alone(line: Line) -> None:
    wiring = import_module(f"pipelines.{line.name}").WIRING
    for stage, artifacts in line.thread.items():
        inputs = {name: f"/tmp/{name}" for name in artifacts}
        parameters = {"config": {}, "gateway_url": "http://127.0.0.1:1"}
        before = {BEFORE: "/tmp/lineage"} if stage != line.stages[0] else {}
        assert alone(wiring, stage, {**inputs, **before}, parameters).pipeline_spec.deployment_spec
