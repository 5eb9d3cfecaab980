"""A step that launches a job hands its machine on to it; one that trains in its own pod keeps it."""

from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from kfp import compiler, dsl

from components.training.sft.config import SftConfig
from pipelines.graph.checks import check_compiled
from pipelines.graph.graph import GraphInputs, wire_stages
from pipelines.lines.cluster_resources import Cluster, Machine, Pod
from pipelines.lines.line import Line, LineConfig, Stage
from tests.screens.graph_yaml import LOADER

PASSED = [
    dsl.TaskConfigField.RESOURCES,
    dsl.TaskConfigField.KUBERNETES_TOLERATIONS,
    dsl.TaskConfigField.KUBERNETES_NODE_SELECTOR,
    dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.ENV, apply_to_task=True),
    dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.KUBERNETES_VOLUMES, apply_to_task=True),
]


def launches(config: dict, task_config: dsl.TaskConfig) -> None:  # type: ignore[type-arg]
    """As a training is that may go out as a job."""


LAUNCH = dsl.component(
    launches, base_image="qinglan/sft:0.1.0", install_kfp_package=False, task_config_passthroughs=PASSED
)


class LaunchStage(Stage):
    """A stage whose component is LAUNCH."""

    def load_component(self) -> Any:
        return LAUNCH


class LaunchConfig(LineConfig):
    """A line of one stage."""

    sft: Annotated[SftConfig, LaunchStage(inputs=(), cached=False, resumes=True)] = SftConfig()


ALONE = Line("alone", LaunchConfig, last="sft", about="It launches a job.", rerun_note="nothing is kept.")


def compiled(machine: Machine, out: Path) -> str:
    def graph() -> None:
        wire_stages(ALONE, ["sft"], {}, GraphInputs({"sft": {}}, {}, Cluster({"sft": machine})))

    compiler.Compiler().compile(dsl.pipeline(graph, name="alone"), str(out / "alone.yaml"))
    return (out / "alone.yaml").read_text(encoding="utf-8")


def of_step(text: str) -> tuple[dict[str, bool], Any, Any]:
    """Return the resources that it hands on (and if the step keeps them too), the container's resources, the pod."""
    spec, platform = yaml.load_all(text, Loader=LOADER)
    fields = spec["components"]["comp-launches"]["taskConfigPassthroughs"]
    handed = {field["field"]: field.get("applyToTask", False) for field in fields}
    [executor] = spec["deploymentSpec"]["executors"].values()
    [pod] = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"].values()
    return handed, executor["container"]["resources"], pod


def test_with_gpus_the_job_gets_them_and_the_step_holds_none(tmp_path: Path) -> None:
    text = compiled(Machine(Pod(cpu=48, memory=480), 4, {"gpu": "a100"}, scratch="qinglan-scratch"), tmp_path)
    handed, resources, pod = of_step(text)

    assert handed["RESOURCES"] is handed["KUBERNETES_NODE_SELECTOR"] is handed["KUBERNETES_TOLERATIONS"] is False
    assert handed["ENV"] is handed["KUBERNETES_VOLUMES"] is True
    assert (resources["accelerator"]["resourceCount"], resources["resourceMemoryLimit"]) == ("4", "480Gi")
    assert "emptyDirMounts" not in pod  # KFP keeps these with the step: the job has a /dev/shm of its own
    assert pod["pvcMount"][0]["mountPath"] == "/var/lib/qinglan"
    assert check_compiled(text) == []


def test_without_gpus_the_step_trains_in_its_own_pod_and_keeps_all_that_it_asked_for(tmp_path: Path) -> None:
    handed, resources, _ = of_step(compiled(Machine(Pod(cpu=2, memory=8)), tmp_path))

    assert set(handed.values()) == {True}
    assert "accelerator" not in resources and resources["resourceMemoryLimit"] == "8Gi"


@pytest.mark.parametrize("gpus", [4, 0])
def test_compiling_for_one_machine_changes_nothing_for_the_next(tmp_path: Path, gpus: int) -> None:
    fields = LAUNCH.component_spec.task_config_passthroughs
    before = [field.apply_to_task for field in fields]

    compiled(Machine(Pod(), gpus), tmp_path)

    assert [field.apply_to_task for field in LAUNCH.component_spec.task_config_passthroughs] == before
