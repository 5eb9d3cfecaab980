"""The compiled graph in the repository is the one that the code compiles to, byte for byte."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from pipelines.compiling import COMPILED
from pipelines.rewriter import COMPONENTS
from pipelines.thread import THREAD


def test_the_golden_copy_is_fresh_under_any_hash_seed(tmp_path: Path) -> None:
    for seed in ("0", "4242"):
        out = tmp_path / f"{seed}.yaml"
        command = [sys.executable, "-m", "pipelines.compiling", str(out)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed})

        assert out.read_bytes() == COMPILED.read_bytes(), "run `make golden`"


def spec() -> Any:
    return next(yaml.safe_load_all(COMPILED.read_text(encoding="utf-8")))


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


def test_only_what_the_gate_promotes_becomes_a_candidate() -> None:
    condition = spec()["root"]["dag"]["tasks"]["condition-1"]["triggerPolicy"]["condition"]

    assert condition == "inputs.parameter_values['pipelinechannel--gate-Output'] == 'promote'"


def test_what_is_wired_is_what_the_components_take() -> None:
    for stage, artifacts in THREAD.items():
        inputs = COMPONENTS[stage].component_spec.inputs
        assert {name for name, one in inputs.items() if one.type.startswith("system.")} == set(artifacts)


def test_gpus_are_asked_for_with_type_and_count_memory_time_and_tolerance() -> None:
    compiled, platform = yaml.safe_load_all(COMPILED.read_text(encoding="utf-8"))
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]

    for stage in ("sft", "ppo", "evaluate"):
        asked = compiled["deploymentSpec"]["executors"][f"exec-{stage}"]["container"]["resources"]["accelerator"]
        assert asked["resourceType"] == "nvidia.com/gpu" and asked["resourceCount"]
        pod = executors[f"exec-{stage}"]
        assert pod["emptyDirMounts"] == [{"mountPath": "/dev/shm", "medium": "Memory", "volumeName": "shm"}]
        assert pod["tolerations"][0]["key"] == "nvidia.com/gpu"
        assert int(pod["activeDeadlineSeconds"]) > 3600
        assert pod["nodeSelector"]
    defaults = compiled["root"]["inputDefinitions"]["parameters"]
    assert defaults["gpu_nodes"]["defaultValue"] == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    assert [defaults[f"{stage}_gpus"]["defaultValue"] for stage in ("sft", "ppo", "evaluate")] == [4.0, 4.0, 1.0]


def test_no_step_installs_anything_or_asks_for_a_key() -> None:
    text = COMPILED.read_text(encoding="utf-8")

    assert "pip install" not in text
    assert "api_key" not in text.lower()


def test_paid_steps_are_never_answered_from_kfps_cache() -> None:
    tasks = spec()["root"]["dag"]["tasks"]

    for stage in ("generate", "validate", "base", "ppo", "evaluate"):
        assert "enableCache" not in tasks[stage]["cachingOptions"]
    for stage in ("convert", "sft"):
        assert tasks[stage]["cachingOptions"]["enableCache"] is True
