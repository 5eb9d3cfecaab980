"""The compiled graphs in the repository are those that the code compiles to, and ask for what each profile says."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from google.protobuf.json_format import MessageToDict

from pipelines.config import CONFIGS, TRAINING, load_config, load_style_config
from pipelines.graph import GraphInputs, single_stage_graph
from pipelines.graph_compiler import (
    COMPILED,
    compile_targets,
    golden_targets,
    image_names,
    read_images,
    rewriter_target,
    select_targets,
    style_target,
)  # fmt: skip
from pipelines.line import BEFORE, LINEAGE, Line
from pipelines.lines import ARTIFACT_FILES, LINES
from pipelines.rewriter import REWRITER
from pipelines.style import STYLE
from qinglan.config import load_yaml
from qinglan.errors import ConfigError

pytestmark = pytest.mark.slow

GOLDENS = sorted(path.stem for path in COMPILED.glob("*.yaml"))
ON_GPUS = {
    "rewriter.a100x4": {"sft": 4, "ppo": 4, "evaluate": 1},
    "rewriter.a100x8": {"sft": 8, "ppo": 8, "evaluate": 1},
    "rewriter.a100x8-full": {"sft": 8, "ppo": 8, "evaluate": 1},
    "rewriter.one-gpu-24": {"sft": 1, "ppo": 1, "evaluate": 1},
    "rewriter.one-gpu-80": {"sft": 1, "ppo": 1, "evaluate": 1},
    "rewriter.a100-multinode": {"sft": 4, "ppo": 4, "evaluate": 1},
    "style.a100": {"style": 1, "evaluate-style": 1, "distil": 1},
    "style.one-gpu-24": {"style": 1, "evaluate-style": 1, "distil": 1},
}
"""By graph and task: GPUs of one node."""

DIGEST = "sha256:" + "a1" * 32


class Compiled(NamedTuple):
    spec: Any
    pods: Any
    """What Kubernetes is told, by executor."""

    @property
    def tasks(self) -> dict[str, Any]:
        """Of the graph and of its branch."""
        branches = [one["dag"]["tasks"] for one in self.spec["components"].values() if "dag" in one]
        return {name: task for part in (self.spec["root"]["dag"]["tasks"], *branches) for name, task in part.items()}

    @property
    def steps(self) -> dict[str, Any]:
        """Each container, by task."""
        executors = self.spec["deploymentSpec"]["executors"]
        return {name.removeprefix("exec-"): one["container"] for name, one in executors.items() if "container" in one}

    def pod(self, step: str) -> Any:
        return self.pods[f"exec-{step}"]


@cache
def compiled(name: str) -> Compiled:
    return parsed((COMPILED / f"{name}.yaml").read_text(encoding="utf-8"))


def parsed(text: str) -> Compiled:
    spec, platform = yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return Compiled(spec, platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"])


@pytest.mark.slow
def test_the_golden_copies_are_fresh_under_any_hash_seed(tmp_path: Path) -> None:
    compile_targets(golden_targets(), tmp_path / "here", {})
    command = [sys.executable, "-m", "pipelines.graph_compiler", str(tmp_path / "there")]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "4242"})

    for out in (tmp_path / "here", tmp_path / "there"):
        assert sorted(path.stem for path in out.iterdir()) == GOLDENS, "run `make golden`"
        for name in GOLDENS:
            assert (out / f"{name}.yaml").read_bytes() == (COMPILED / f"{name}.yaml").read_bytes(), (
                "run `make golden`"
            )


def test_each_machine_of_each_line_has_a_golden_graph() -> None:
    assert {*ON_GPUS, "rewriter.laptop", "style.laptop", "style.cpu"} == set(GOLDENS)
    assert {f"rewriter.{path.stem}" for path in TRAINING.glob("*.yaml")} - set(GOLDENS) == {"rewriter.cpu"}


@pytest.mark.parametrize("name", [name for name in GOLDENS if name.startswith("rewriter")])
def test_the_graph_is_the_thread(name: str) -> None:
    tasks = compiled(name).spec["root"]["dag"]["tasks"]
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


@pytest.mark.parametrize("name", [name for name in GOLDENS if name.startswith("style")])
def test_the_style_graph_is_its_line(name: str) -> None:
    tasks = compiled(name).spec["root"]["dag"]["tasks"]
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
        shown = {item for item, one in spec.outputs.items() if one.type.partition("@")[0] in ON_THE_PAGE}
        assert artifacts(spec.outputs) - shown == {*stage.outputs, LINEAGE}
        assert ("gateway_url" in spec.inputs) is stage.gateway


ON_THE_PAGE = {"system.Markdown", "system.Metrics", "system.ClassificationMetrics"}
"""Outputs for KFP's page alone."""


def artifacts(items: Any) -> set[str]:
    """The names of a component's inputs or outputs that are artifacts."""
    return {name for name, one in items.items() if one.type.startswith("system.")}


def test_both_lines_call_an_artifact_by_the_same_file() -> None:
    for line in LINES.values():
        assert {name: ARTIFACT_FILES[name] for name in line.files} == line.files


@pytest.mark.parametrize("name", GOLDENS)
def test_a_person_is_asked_for_little_and_told_what_each_thing_is(name: str) -> None:
    asked = compiled(name).spec["root"]["inputDefinitions"]["parameters"]
    defaults = {one: found.get("defaultValue") for one, found in asked.items()}

    if name.startswith("rewriter"):
        assert defaults == {
            "questions": None, "knowledge_base": None, "gateway_url": "http://qinglan-gateway:8300",
            "release_name": "fivedoctors/rewriter",
        }  # fmt: skip
    else:
        assert defaults == {"labelled": None, "release_name": "house/style"}
    assert all(len(one["description"]) > 30 for one in asked.values())


def test_the_docs_name_every_parameter_and_every_profile_with_its_gpus() -> None:
    docs = (COMPILED.parents[1] / "docs" / "pipelines.md").read_text(encoding="utf-8")

    for name in GOLDENS:
        assert all(f"`{one}`" in docs for one in compiled(name).spec["root"]["inputDefinitions"]["parameters"])
    for name, gpus in ON_GPUS.items():
        [row] = [
            line for line in docs.splitlines() if f"/{name.partition('.')[2]}.yaml)" in line and named(name, line)
        ]
        if name.startswith("rewriter"):
            for stage, column in (("sft", 2), ("ppo", 3)):
                days = int(compiled(name).pod(stage)["activeDeadlineSeconds"]) // (24 * 3600)
                cards = "1 GPU" if gpus[stage] == 1 else f"{gpus[stage]} GPUs"
                assert f"{cards}, up to {days} days" in row.split("|")[column]


def named(name: str, row: str) -> bool:
    return (f"configs/{'style' if name.startswith('style') else 'training'}/") in row


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
        assert constant == settings[stage], stage


@pytest.mark.parametrize("name", GOLDENS)
def test_every_step_gets_the_key_it_signs_with_and_knows_its_run_and_image(name: str) -> None:
    found = compiled(name)

    for step, container in found.steps.items():
        pod = found.pod(step)
        [secret] = pod["secretAsVolume"]
        assert secret["mountPath"] == "/etc/qinglan/keys"
        assert secret["secretName"] == ("qinglan-release-keys" if "register" in step else "qinglan-builder-key")
        assert {one["name"] for one in pod["fieldPathAsEnv"]} == {"QINGLAN_RUN", "QINGLAN_IMAGE"}
        assert pod["podMetadata"]["annotations"] == {"qinglan/image": container["image"]}


FETCHING = {
    name: name
    for name in (
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL_S3",
    )
}  # fmt: skip
"""What KFP's launcher reads from the environment where an input lies in another bucket than KFP's own."""


def fetching(found: Compiled) -> set[str]:
    """The steps that take an artifact which an importer brings, in branches too."""
    components, executors = found.spec["components"], found.spec["deploymentSpec"]["executors"]
    labels = {
        name: components[task["componentRef"]["name"]].get("executorLabel") for name, task in found.tasks.items()
    }
    importers = {name for name, label in labels.items() if label and "importer" in executors[label]}
    return {
        name
        for name, task in found.tasks.items()
        for source in task.get("inputs", {}).get("artifacts", {}).values()
        if source.get("taskOutputArtifact", {}).get("producerTask") in importers
    }


def store_keys(found: Compiled, step: str) -> dict[str, str]:
    """By variable, the key of the store's Secret that a step is given."""
    given = [one for one in found.pod(step).get("secretAsEnv", ()) if one["secretName"] == "qinglan-store"]
    assert all(one["optional"] for one in given)
    return {key["envVar"]: key["secretKey"] for one in given for key in one["keyToEnv"]}


@pytest.mark.parametrize("name", GOLDENS)
def test_steps_that_take_an_imported_input_and_no_others_can_fetch_it(name: str) -> None:
    found = compiled(name)

    expected = {"generate", "validate", "base"} if name.startswith("rewriter") else {"prepare"}
    assert fetching(found) == expected
    for step in found.steps:
        if step in expected:
            assert store_keys(found, step) == FETCHING
        else:
            assert "AWS_ENDPOINT_URL_S3" not in store_keys(found, step)
            assert bool(store_keys(found, step)) is step.startswith("register")


@pytest.mark.parametrize("name", GOLDENS)
def test_every_pod_asks_for_what_a_quota_counts_is_not_root_and_ends(name: str) -> None:
    found = compiled(name)

    for step, container in found.steps.items():
        asked, pod = container["resources"], found.pod(step)
        assert asked["resourceCpuRequest"] == asked["resourceCpuLimit"]
        assert asked["resourceMemoryRequest"] == asked["resourceMemoryLimit"]
        assert asked["resourceMemoryLimit"].endswith("Gi")
        assert pod["securityContext"] == {"runAsUser": "65532", "runAsGroup": "65532", "runAsNonRoot": True}
        assert int(pod["activeDeadlineSeconds"]) >= 3600


@pytest.mark.parametrize("name", GOLDENS)
def test_every_pod_says_what_it_is_part_of_which_step_and_whose(name: str) -> None:
    found = compiled(name)
    tenant = {"qinglan.dev/tenant": "fivedoctors"} if name.startswith("rewriter") else {}

    for step in found.steps:
        stage = step.removeprefix("text-").removesuffix("-style").replace("-", "_")
        labels = {"app.kubernetes.io/part-of": "qinglan", "qinglan.dev/step": stage, **tenant}
        assert found.pod(step)["podMetadata"]["labels"] == labels


@pytest.mark.parametrize("name", GOLDENS)
def test_steps_that_waiting_can_mend_are_retried_long_enough(name: str) -> None:
    found = compiled(name)

    for task in found.steps:
        retry = found.tasks[task].get("retryPolicy")
        assert (retry is None) == (task in ("convert", "prepare", "gate", "gate-style", "gate-small"))
        if retry:
            assert retry["maxRetryCount"] == 2
            # Argo counts from the first attempt's start.
            assert int(retry["backoffMaxDuration"][:-1]) == 3 * int(found.pod(task)["activeDeadlineSeconds"])


@pytest.mark.parametrize("name", GOLDENS)
def test_gpus_are_asked_for_with_type_and_count_memory_time_and_tolerance(name: str) -> None:
    found = compiled(name)
    asked = {step: one["resources"].get("accelerator") for step, one in found.steps.items()}

    assert {step: int(one["resourceCount"]) for step, one in asked.items() if one} == ON_GPUS.get(name, {})
    for step, one in asked.items():
        pod = found.pod(step)
        if not one:
            assert not {"nodeSelector", "tolerations", "emptyDirMounts"} & set(pod)
            continue
        assert one["resourceType"] == "nvidia.com/gpu"
        assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
        card = "NVIDIA-L4" if name.endswith("-24") else "NVIDIA-A100-SXM4-80GB"
        assert pod["nodeSelector"] == {"labels": {"nvidia.com/gpu.product": card}}
        if not hands_on(found, step):
            assert pod["emptyDirMounts"] == [{"mountPath": "/dev/shm", "medium": "Memory", "volumeName": "shm"}]


def hands_on(found: Compiled, step: str) -> bool:
    """Whether its GPUs go to a job that it launches."""
    return any(
        one["field"] == "RESOURCES" and not one.get("applyToTask")
        for one in found.spec["components"][f"comp-{step}"].get("taskConfigPassthroughs", ())
    )


@pytest.mark.parametrize("name", GOLDENS)
def test_only_gpu_profiles_want_volumes_and_only_what_goes_on_from_them_mounts_one(name: str) -> None:
    found = compiled(name)
    mounted = {step: {one["constant"] for one in found.pod(step).get("pvcMount", ())} for step in found.steps}
    caches = {step for step, one in found.steps.items() if {"name": "QINGLAN_CACHE", "value": CACHE} in env(one)}

    if name not in ON_GPUS:
        assert {claim for claims in mounted.values() for claim in claims} <= {"qinglan-base-weights"} and not caches
        return
    public = {"base", "sft", "ppo"} if name.startswith("rewriter") else {"text-base", "style"}  # ppo: its critic
    resuming = {"base", "sft", "ppo"} if name.startswith("rewriter") else {"style", "distil"}
    assert {step for step, claims in mounted.items() if "qinglan-scratch" in claims} == resuming == caches
    assert {step for step, claims in mounted.items() if "qinglan-base-weights" in claims} == public


CACHE = "/var/lib/qinglan/cache"


def env(container: Any) -> list[Any]:
    return list(container.get("env", ()))


def test_nothing_is_answered_from_kfps_cache_by_an_image_without_a_digest(tmp_path: Path) -> None:
    release = {name: f"registry.example:5000/{name}@{DIGEST}" for name in image_names()}
    cached = {}
    for name in ("rewriter", "style"):
        [path] = compile_targets([one for one in golden_targets() if one.name == f"{name}.laptop"], tmp_path, release)
        found = parsed(path.read_text(encoding="utf-8"))
        assert {one["image"] for one in found.steps.values()} <= set(release.values())
        cached[name] = {step for step in found.steps if found.tasks[step]["cachingOptions"].get("enableCache")}

    assert cached["rewriter"] == {"convert", "base", "gate"}  # what is paid, launched or registered never is
    assert cached["style"] == {
        "prepare",
        "text-base",
        "style",
        "evaluate-style",
        "gate-style",
        "distil",
        "evaluate-small",
        "gate-small",
    }
    for name in GOLDENS:
        tasks = compiled(name).tasks
        assert not [step for step in compiled(name).steps if tasks[step]["cachingOptions"].get("enableCache")]


def test_paid_stages_are_answered_from_kfps_cache_by_the_gateways_state(tmp_path: Path) -> None:
    release = {name: f"{name}@{DIGEST}" for name in image_names()}
    [target] = [one for one in golden_targets() if one.name == "rewriter.laptop"]
    assert "gateway-state" not in compiled(target.name).tasks, "nothing of it can be cached"
    cluster = target.config.cluster.model_copy(update={"immutable_inputs": True})
    target = target._replace(config=target.config.model_copy(update={"cluster": cluster}))

    [path] = compile_targets([target], tmp_path, release)

    found = parsed(path.read_text(encoding="utf-8"))
    cached = {step for step in found.steps if found.tasks[step]["cachingOptions"].get("enableCache")}
    assert cached == {"generate", "validate", "convert", "base", "gate"}
    state = {"taskOutputParameter": {"outputParameterKey": "Output", "producerTask": "gateway-state"}}
    taking = {
        name
        for name, task in found.tasks.items()
        if task.get("inputs", {}).get("parameters", {}).get("gateway_state")
    }
    assert taking == {"generate", "validate"}
    assert all(found.tasks[name]["inputs"]["parameters"]["gateway_state"] == state for name in taking)
    assert found.pod("gateway-state")["securityContext"]["runAsNonRoot"] is True


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


@pytest.mark.parametrize("immutable", [False, True])
def test_inputs_are_imported_anew_unless_their_addresses_name_their_content(tmp_path: Path, immutable: bool) -> None:
    [target] = select_targets("style", "laptop", "")
    cluster = target.config.cluster.model_copy(update={"immutable_inputs": immutable})
    target = target._replace(config=target.config.model_copy(update={"cluster": cluster}))

    [path] = compile_targets([target], tmp_path, {})

    importer = parsed(path.read_text(encoding="utf-8")).spec["deploymentSpec"]["executors"]["exec-importer"][
        "importer"
    ]
    assert importer.get("reimport", False) is not immutable


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
    assert tasks[stage]["inputs"]["parameters"]["monitor_url"] == address


def test_mlflow_on_a_cluster_needs_the_gateways_address_of_it(tmp_path: Path) -> None:
    profile = tmp_path / "mine.yaml"
    settings = load_yaml(CONFIGS / "fivedoctors" / "gpt.yaml") | {"trackers": ["mlflow"]}
    profile.write_text(yaml.safe_dump(settings))
    with pytest.raises(ConfigError, match="reaches it through the gateway alone"):
        rewriter_target("fivedoctors", str(profile))

    settings["gateway"]["mlflow"] = {"base_url": "https://mlflow.example.com"}
    profile.write_text(yaml.safe_dump(settings))
    assert rewriter_target("fivedoctors", str(profile)).config.trackers == ("mlflow",)


def test_a_tenants_own_profile_compiles_on_the_machines_that_it_or_the_command_names(tmp_path: Path) -> None:
    [own] = compile_targets(select_targets("fivedoctors", "gpt", ""), tmp_path, {})
    [other] = compile_targets(select_targets("chengla", "gpt", "a100x8-full"), tmp_path, {})

    assert (own.name, other.name) == ("rewriter.fivedoctors-gpt.yaml", "rewriter.chengla-gpt-a100x8-full.yaml")
    said = parsed(other.read_text(encoding="utf-8"))
    assert said.spec["pipelineInfo"]["description"].endswith("Tenant chengla, profile gpt, trained on a100x8-full.")
    assert said.spec["root"]["inputDefinitions"]["parameters"]["release_name"]["defaultValue"] == "chengla/rewriter"
    assert said.steps["sft"]["resources"]["accelerator"]["resourceCount"] == "8"


def test_a_release_with_an_image_left_out_is_not_written(tmp_path: Path) -> None:
    images = {name: f"{name}@{DIGEST}" for name in sorted(image_names())[1:]}

    with pytest.raises(ConfigError, match=r"^rewriter\.fivedoctors-gpt\.yaml: not written.*has no digest\."):
        compile_targets(select_targets("fivedoctors", "gpt", ""), tmp_path, images)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", ["nothing", "qinglan/none=a@" + DIGEST, "qinglan/cpu=a:0.1.0", "=@" + DIGEST])
def test_an_image_that_is_none_of_ours_or_has_no_digest_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=r"give NAME=REFERENCE@sha256:DIGEST, where NAME is one of qinglan/"):
        read_images([given])


@pytest.mark.parametrize(("profile", "training"), [("", "a100x4"), ("gpt", "")])
def test_options_of_one_tenants_graph_are_refused_without_a_tenant(profile: str, training: str) -> None:
    with pytest.raises(ConfigError, match=r"changes one tenant's graph\. Give --tenant too"):
        select_targets("", profile, training)


def test_without_a_profile_a_line_has_its_usual_one() -> None:
    assert [select_targets(one, "", "")[0].name for one in ("style", "fivedoctors")] == [
        "style.a100", "rewriter.fivedoctors-gpt"
    ]  # fmt: skip


def test_a_training_of_the_rewriter_is_refused_for_style() -> None:
    with pytest.raises(ConfigError, match="--training a100x4: is the rewriter's alone"):
        select_targets("style", "a100", "a100x4")


@pytest.mark.parametrize("name", GOLDENS)
def test_a_branch_is_given_every_parameter_that_it_uses(name: str) -> None:
    branch = compiled(name).spec["components"]["comp-condition-1"]
    used = {
        found
        for task in branch["dag"]["tasks"].values()
        for value in task["inputs"].get("parameters", {}).values()
        if (found := value.get("componentInputParameter"))
    }

    assert used <= set(branch["inputDefinitions"]["parameters"])


@pytest.mark.parametrize("line", [REWRITER, STYLE], ids=lambda line: line.name)
def test_every_stage_can_run_alone(line: Line) -> None:
    rewriter, style = load_config("fivedoctors", "demo"), load_style_config("laptop", labelled=Path("x.json"))
    place = {"namespace": "qinglan"}
    settings = (rewriter if line is REWRITER else style).stages() | {"deploy": place, "deploy_small": place}
    for name, stage in line.stages.items():
        uris = {artifact: f"/tmp/{artifact}" for artifact in stage.inputs}
        before = {BEFORE: "/tmp/lineage"} if name != next(iter(line.stages)) else {}
        parameters = {"gateway_url": "http://127.0.0.1:1", "release_name": "a/b"}
        graph = single_stage_graph(stage, {**uris, **before}, GraphInputs(settings, parameters))
        assert graph.pipeline_spec.deployment_spec
        (pod,) = MessageToDict(graph.platform_spec)["platforms"]["kubernetes"]["deploymentSpec"]["executors"].values()
        given = {key["envVar"] for one in pod["secretAsEnv"] for key in one["keyToEnv"]}
        assert {*FETCHING} <= given, "all that it takes is imported"


def test_a_profile_that_says_where_to_gets_a_deploy_step_behind_the_gate(tmp_path: Path) -> None:
    profile = tmp_path / "deployed.yaml"
    asked = load_yaml(CONFIGS / "fivedoctors/gpt.yaml")
    asked |= {"register": {"store": "s3://qinglan/fivedoctors"}, "deploy": {"namespace": "qinglan"}}
    profile.write_text(yaml.safe_dump(asked))

    [path] = compile_targets([rewriter_target("fivedoctors", str(profile))], tmp_path, {})
    made = parsed(path.read_text(encoding="utf-8"))

    branch = made.spec["components"]["comp-condition-1"]["dag"]["tasks"]
    assert set(branch) == {"register", "deploy"} and branch["deploy"]["dependentTasks"] == ["register"]
    assert branch["deploy"]["cachingOptions"] == {}
    given = branch["deploy"]["inputs"]["parameters"]["config"]["runtimeValue"]["constant"]
    assert given["store"] == "s3://qinglan/fivedoctors" and given["namespace"] == "qinglan"
    pod = made.pod("deploy")
    assert [one["configMapName"] for one in pod["configMapAsEnv"]] == ["qinglan-trust"]
    assert [one["secretName"] for one in pod["secretAsVolume"]] == ["qinglan-builder-key"], "it releases nothing"


def test_a_style_model_is_deployed_and_judged_by_what_it_counts(tmp_path: Path) -> None:
    profile = tmp_path / "deployed.yaml"
    asked, place = load_yaml(CONFIGS / "style/a100.yaml"), {"namespace": "qinglan", "store": "s3://qinglan/house"}
    profile.write_text(yaml.safe_dump(asked | {"deploy": place, "deploy_small": place}))

    [path] = compile_targets([style_target(str(profile))], tmp_path, {})
    made = parsed(path.read_text(encoding="utf-8"))

    branch = made.spec["components"]["comp-condition-1"]["dag"]["tasks"]
    outer = {"register-style", "deploy", "distil", "evaluate-small", "gate-small"}
    assert {name for name in branch if not name.startswith("condition")} == outer
    assert branch["distil"]["dependentTasks"] == ["register-style"], "it waits for no rollout"
    given = branch["deploy"]["inputs"]["parameters"]["config"]["runtimeValue"]["constant"]
    assert (given["name"], given["service"], given["runtime"]) == ("house/style", "style", "qinglan-style")
    assert [one["name"] for one in given["rollout"]["checks"]] == ["errors", "slow"]


def test_the_small_model_has_its_own_gate_its_own_release_and_its_own_runtime(tmp_path: Path) -> None:
    profile = tmp_path / "deployed.yaml"
    asked = load_yaml(CONFIGS / "style/a100.yaml")
    profile.write_text(yaml.safe_dump(asked | {"deploy_small": {"namespace": "qinglan", "store": "s3://q/house"}}))

    [path] = compile_targets([style_target(str(profile))], tmp_path, {})
    made = parsed(path.read_text(encoding="utf-8"))

    assert "deploy" not in made.tasks, "nobody asked for the large one"
    branches = [one["dag"]["tasks"] for one in made.spec["components"].values() if "dag" in one]
    [inner] = [tasks for tasks in branches if "register-small" in tasks]
    assert set(inner) == {"register-small", "deploy-small"}
    given = inner["deploy-small"]["inputs"]["parameters"]["config"]["runtimeValue"]["constant"]
    served = (given["name"], given["service"], given["runtime"])
    assert served == ("house/style-small", "style-small", "qinglan-style-onnx")
    keys = {step: made.pod(step)["secretAsVolume"][0]["secretName"] for step in ("register-small", "deploy-small")}
    assert keys == {"register-small": "qinglan-release-keys", "deploy-small": "qinglan-builder-key"}


def test_a_graph_deploys_nothing_that_nobody_asked_for() -> None:
    assert not any("deploy" in compiled(name).steps for name in GOLDENS)
