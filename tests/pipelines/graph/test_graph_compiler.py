"""The compiled graphs in the repository are those that the code compiles to; images and options are checked."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.graph.compiler import (
    COMPILED,
    compile_targets,
    golden_targets,
    image_names,
    read_images,
    rewriter_target,
    select_targets,
    style_target,
)  # fmt: skip
from pipelines.lines.config import TRAINING
from pipelines.lines.style import STYLE
from qinglan.errors import ConfigError
from tests.pipelines.graph.compiled_graphs import DIGEST, GOLDENS, ON_GPUS, Compiled, compiled, parsed

pytestmark = pytest.mark.slow


@pytest.mark.nightly
def test_the_golden_copies_are_fresh_under_another_hash_seed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipelines.graph.compiler", str(tmp_path)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "4242"})

    assert sorted(path.stem for path in tmp_path.iterdir()) == GOLDENS, "run `make golden`"
    for name in GOLDENS:
        assert (tmp_path / f"{name}.yaml").read_bytes() == (COMPILED / f"{name}.yaml").read_bytes(), (
            "run `make golden`"
        )


def test_each_machine_of_each_line_has_a_golden_graph() -> None:
    assert {*ON_GPUS, "rewriter.laptop", "style.laptop", "style.cpu"} == set(GOLDENS)
    assert {f"rewriter.{path.stem}" for path in TRAINING.glob("*.yaml")} - set(GOLDENS) == {"rewriter.cpu"}


@pytest.mark.parametrize("target", golden_targets(), ids=lambda target: target.name)
def test_a_profiles_settings_are_part_of_its_graph(target: Any) -> None:
    tasks, settings = compiled(target.name).tasks, target.config.stages()
    names = {"prepare": "prepare", "distil": "distil", "style": "style"}
    if target.line is STYLE:
        names |= {"base": "text-base", "evaluate": "evaluate-style", "gate": "gate-style"}
        names["register"] = "register-style"
        names |= {stage: stage.replace("_", "-") for stage in target.line.stages if stage.endswith("_small")}

    for stage in target.line.until(target.line.last):
        constant = tasks[names.get(stage, stage)]["inputs"]["parameters"]["config"]["runtimeValue"]["constant"]
        config = target.line.stages[stage].config
        assert config.parse(constant, stage) == config.parse(settings[stage], stage), stage
        assert constant.keys() <= config.parse(settings[stage], stage).changes().keys(), "the defaults are left out"


def test_nothing_is_answered_from_kfps_cache_by_an_image_without_a_digest(tmp_path: Path) -> None:
    release = {name: f"registry.example:5000/{name}@{DIGEST}" for name in image_names()}
    cached = {}
    for name in ("rewriter", "style"):
        [path] = compile_targets(
            [golden_target for golden_target in golden_targets() if golden_target.name == f"{name}.laptop"],
            tmp_path,
            release,
        )
        result = parsed(path.read_text(encoding="utf-8"))
        assert {step["image"] for step in result.steps.values()} <= set(release.values())
        cached[name] = cached_steps(result)

    assert cached["rewriter"] == {"convert", "base", "gate"}  # what is paid, launched or registered never is
    small = {"distil", "evaluate-small", "gate-small"}
    assert cached["style"] == {"prepare", "text-base", "style", "evaluate-style", "gate-style"} | small
    for name in GOLDENS:
        assert cached_steps(compiled(name)) == set(), "its images are named by tag"


def test_paid_stages_are_answered_from_kfps_cache_by_the_gateways_state(tmp_path: Path) -> None:
    release = {name: f"{name}@{DIGEST}" for name in image_names()}
    [target] = [golden_target for golden_target in golden_targets() if golden_target.name == "rewriter.laptop"]
    assert "gateway-state" not in compiled(target.name).tasks, "nothing of it can be cached"
    cluster = target.config.cluster.model_copy(update={"immutable_inputs": True})
    target = target._replace(config=target.config.model_copy(update={"cluster": cluster}))

    [path] = compile_targets([target], tmp_path, release)

    result = parsed(path.read_text(encoding="utf-8"))
    assert cached_steps(result) == {"generate", "validate", "label", "convert", "augment", "base", "gate"}
    state = {"taskOutputParameter": {"outputParameterKey": "Output", "producerTask": "gateway-state"}}
    inputs = {name: task.get("inputs", {}).get("parameters", {}) for name, task in result.tasks.items()}
    taking = {name: values["gateway_state"] for name, values in inputs.items() if values.get("gateway_state")}
    assert taking == dict.fromkeys(("generate", "validate", "label", "augment"), state)
    assert result.pod("gateway-state")["securityContext"]["runAsNonRoot"] is True


def test_a_base_from_a_hubs_branch_is_looked_up_again_and_one_from_a_commit_is_not(tmp_path: Path) -> None:
    release = {name: f"{name}@{DIGEST}" for name in image_names()}
    cached = {}
    for revision in ("main", "0" * 40):
        [target] = select_targets("style", "a100", "")
        base = target.config.base.model_copy(update={"revision": revision})
        target = target._replace(config=target.config.model_copy(update={"base": base}))
        [path] = compile_targets([target], tmp_path, release)
        caching = parsed(path.read_text(encoding="utf-8")).tasks["text-base"]["cachingOptions"]
        cached[revision] = caching.get("enableCache", False)

    assert cached == {"main": False, "0" * 40: True}


@pytest.mark.parametrize("name", GOLDENS)
def test_with_inputs_that_may_change_kfps_cache_answers_with_no_step_of_an_earlier_run(
    name: str, tmp_path: Path
) -> None:
    """The way out of statements that a wrong clock dated ahead (docs/audit.md): each step runs and is signed anew."""
    [target] = [golden_target for golden_target in golden_targets() if golden_target.name == name]
    cluster = target.config.cluster.model_copy(update={"immutable_inputs": False})
    target = target._replace(config=target.config.model_copy(update={"cluster": cluster}))
    release = {name: f"{name}@{DIGEST}" for name in image_names()}

    [path] = compile_targets([target], tmp_path, release)

    graph = parsed(path.read_text(encoding="utf-8"))
    executors = graph.spec["deploymentSpec"]["executors"]
    importers = {
        name.removeprefix("exec-"): executor["importer"]
        for name, executor in executors.items()
        if "importer" in executor
    }
    answered = cached_steps(graph)
    assert answered, "else this shows nothing"
    anew = {name for name, importer in importers.items() if importer.get("reimport")}
    anew |= graph.tasks.keys() - answered - importers.keys()
    waiting = set(answered)
    while fresh := {step for step in waiting if producers(graph.tasks[step]) & anew}:
        anew |= fresh
        waiting -= fresh
    assert waiting == set(), "its inputs are those of the earlier run"


def cached_steps(graph: Compiled) -> set[str]:
    return {step for step in graph.steps if graph.tasks[step]["cachingOptions"].get("enableCache")}


def producers(task: dict[str, Any]) -> set[str]:
    """The tasks whose artifacts it takes. In KFP's cache an artifact is another one in each run that makes it."""
    artifacts = task.get("inputs", {}).get("artifacts", {}).values()
    return {source["producerTask"] for artifact in artifacts if (source := artifact.get("taskOutputArtifact"))}


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("rewriter.a100x4", {"componentInputParameter": "gateway_url"}),
        ("style.a100", {"runtimeValue": {"constant": "http://qinglan-gateway:8300"}}),
    ],
)
def test_a_training_reports_to_the_runs_gateway_and_no_other_is_asked_for(name: str, address: object) -> None:
    tasks = compiled(name).spec["root"]["dag"]["tasks"]

    [stage] = {"sft", "style"} & set(tasks)
    parameter = {"sft": "gateway_url", "style": "monitor_url"}[stage]
    assert tasks[stage]["inputs"]["parameters"][parameter] == address


def test_mlflow_on_a_cluster_needs_the_gateways_address_of_it() -> None:
    settings: dict[str, Any] = {"trackers": ["mlflow"]}
    with pytest.raises(ConfigError, match="reaches it through the gateway alone"):
        rewriter_target("fivedoctors", "gpt", None, settings)

    settings["gateway"] = {"mlflow": {"base_url": "https://mlflow.example.com"}}
    assert rewriter_target("fivedoctors", "gpt", None, settings).config.trackers == ("mlflow",)


def test_a_tenants_own_profile_compiles_on_the_machines_that_it_or_the_command_names(tmp_path: Path) -> None:
    [own_graph] = compile_targets(select_targets("fivedoctors", "gpt", ""), tmp_path, {})
    [other] = compile_targets(select_targets("chengla", "gpt", "a100x8-full"), tmp_path, {})

    assert (own_graph.name, other.name) == ("rewriter.fivedoctors-gpt.yaml", "rewriter.chengla-gpt-a100x8-full.yaml")
    message = parsed(other.read_text(encoding="utf-8"))
    assert "Tenant chengla, profile gpt, trained on a100x8-full.\n" in message.spec["pipelineInfo"]["description"]
    assert (
        message.spec["root"]["inputDefinitions"]["parameters"]["release_name"]["defaultValue"] == "chengla/rewriter"
    )
    assert message.steps["sft"]["resources"]["accelerator"]["resourceCount"] == "8"


def test_a_release_with_an_image_left_out_is_not_written(tmp_path: Path) -> None:
    images = {name: f"{name}@{DIGEST}" for name in sorted(image_names())[1:]}

    with pytest.raises(ConfigError, match=r"^rewriter\.fivedoctors-gpt\.yaml: not written.*has no digest\."):
        compile_targets(select_targets("fivedoctors", "gpt", ""), tmp_path, images)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inputs", ["nothing", "qinglan/none=a@" + DIGEST, "qinglan/cpu=a:0.1.0", "=@" + DIGEST])
def test_an_image_that_is_none_of_ours_or_has_no_digest_is_refused(inputs: str) -> None:
    with pytest.raises(ConfigError, match=r"give NAME=REFERENCE@sha256:DIGEST, where NAME is one of qinglan/"):
        read_images([inputs])


def test_a_profile_that_says_where_to_gets_a_deploy_step_behind_the_gate(tmp_path: Path) -> None:
    settings = {"register": {"store": "s3://qinglan/fivedoctors"}, "deploy": {"namespace": "qinglan"}}

    [path] = compile_targets([rewriter_target("fivedoctors", "gpt", None, settings)], tmp_path, {})
    graph = parsed(path.read_text(encoding="utf-8"))

    branch = graph.spec["components"]["comp-condition-1"]["dag"]["tasks"]
    assert set(branch) == {"register", "deploy"} and branch["deploy"]["dependentTasks"] == ["register"]
    assert branch["deploy"]["cachingOptions"] == {}
    inputs = branch["deploy"]["inputs"]["parameters"]["config"]["runtimeValue"]["constant"]
    assert inputs["store"] == "s3://qinglan/fivedoctors" and inputs["namespace"] == "qinglan"
    pod = graph.pod("deploy")
    assert [item["configMapName"] for item in pod["configMapAsEnv"]] == ["qinglan-trust"]
    assert [item["secretName"] for item in pod["secretAsVolume"]] == ["qinglan-builder-key"], "it releases nothing"


def test_a_style_model_is_deployed_and_judged_by_what_it_counts(tmp_path: Path) -> None:
    deploy = {"namespace": "qinglan", "store": "s3://qinglan/house"}

    [path] = compile_targets([style_target("a100", {"deploy": deploy, "deploy_small": deploy})], tmp_path, {})
    graph = parsed(path.read_text(encoding="utf-8"))

    branch = graph.spec["components"]["comp-condition-1"]["dag"]["tasks"]
    outer = {"register-style", "deploy", "distil", "evaluate-small", "gate-small"}
    assert {name for name in branch if not name.startswith("condition")} == outer
    assert branch["distil"]["dependentTasks"] == ["register-style"], "it waits for no rollout"
    inputs = branch["deploy"]["inputs"]["parameters"]["config"]["runtimeValue"]["constant"]
    assert (inputs["name"], inputs["service"], inputs["runtime"]) == ("house/style", "style", "qinglan-style")
    assert [check["name"] for check in inputs["rollout"]["checks"]] == ["errors", "slow"]


def test_the_small_model_has_its_own_gate_its_own_release_and_its_own_runtime(tmp_path: Path) -> None:
    settings = {"deploy_small": {"namespace": "qinglan", "store": "s3://q/house"}}

    [path] = compile_targets([style_target("a100", settings)], tmp_path, {})
    graph = parsed(path.read_text(encoding="utf-8"))

    assert "deploy" not in graph.tasks, "it was asked for the small one"
    branches = [component["dag"]["tasks"] for component in graph.spec["components"].values() if "dag" in component]
    [inner] = [tasks for tasks in branches if "register-small" in tasks]
    assert set(inner) == {"register-small", "deploy-small"}
    inputs = inner["deploy-small"]["inputs"]["parameters"]["config"]["runtimeValue"]["constant"]
    served = (inputs["name"], inputs["service"], inputs["runtime"])
    assert served == ("house/style-small", "style-small", "qinglan-style-onnx")
    keys = {step: graph.pod(step)["secretAsVolume"][0]["secretName"] for step in ("register-small", "deploy-small")}
    assert keys == {"register-small": "qinglan-release-keys", "deploy-small": "qinglan-builder-key"}
