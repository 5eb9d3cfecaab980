"""How a line becomes a graph: stages wired by the names of their artifacts, on the machines that they want."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from kfp import dsl, kubernetes

from pipelines.lines import BEFORE, LINEAGE, Line
from qinglan.lineage.keys import MOUNTED
from qinglan.lineage.record import IMAGE_VARIABLE, RUN_VARIABLE

IMAGE_NOTE = "qinglan/image"

GPU = "nvidia.com/gpu"
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
BUILDER_KEY, RELEASE_KEYS = "qinglan-builder-key", "qinglan-release-keys"
"""Secrets: builder.pem; and builder.pem with releaser.pem, for the one step that releases."""

STORE_SECRET = "qinglan-store"
STORE_KEYS = {
    name: name for name in ("QINGLAN_S3_ENDPOINT", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
}
"""The way to an S3 store. Not needed where a store is a mounted folder."""

KINDS = {
    f"{kind.schema_title}@{kind.schema_version}": kind for kind in (dsl.Dataset, dsl.Model, dsl.Artifact, dsl.HTML)
}


class Wiring(NamedTuple):
    """A line's components, and what the cluster must know of them."""

    line: Line
    components: Mapping[str, Any]
    """By stage."""

    hours: Mapping[str, int]
    """The longest that a stage on GPUs may take."""

    never_cached: frozenset[str]
    """KFP's cache key knows nothing of what these stages depend on."""


def given(uri: Any, kind: Any = dsl.Dataset) -> Any:
    """An artifact that no stage made."""
    # No display name: the 2.17 back end looks an importer up by its task name, and records the display name.
    return dsl.importer(artifact_uri=uri, artifact_class=kind, reimport=True).output


def wire(
    wiring: Wiring, stages: Sequence[str], made: dict[str, Any], parameters: dict[str, Any], gpus: Mapping[str, Any]
) -> None:
    """The stages one after another, and behind the gate what only a promoted model gets to."""
    verdict: Any = None
    with ExitStack() as promoted:
        for stage in stages:
            if stage in wiring.line.behind_the_gate and verdict is not None:
                # One branch for all of them: a task may not take what another branch has made.
                promoted.enter_context(dsl.If(verdict == "promote", name="promoted"))
                verdict = None
            mine = {**parameters, "config": parameters.get(f"{stage}_config")}
            task = _task(wiring, stage, made, mine)
            if stage in gpus:
                _on_gpus(task, wiring.hours[stage], gpus[stage], parameters["gpu_nodes"])
            if stage == "gate":
                verdict = task.outputs["Output"]
            made |= {name: task.outputs[name] for name in task.outputs if name != "Output"}


def alone(wiring: Wiring, stage: str, inputs: dict[str, str], parameters: dict[str, Any]) -> Any:
    """A graph of one stage, fed from artifacts that are there already."""

    @dsl.pipeline(name=f"qinglan-{stage}")
    def graph() -> None:
        wanted = wiring.components[stage].component_spec.inputs
        made = {name: given(uri, KINDS[wanted[name].type]) for name, uri in inputs.items()}
        made[LINEAGE] = made.get(BEFORE)
        _task(wiring, stage, made, parameters)

    return graph


def _task(wiring: Wiring, stage: str, made: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
    """One stage, with the artifacts and parameters that it names."""
    component = wiring.components[stage]
    wanted = set(component.component_spec.inputs)
    mine = {name: value for name, value in parameters.items() if name in wanted}
    if BEFORE in wanted:
        mine[BEFORE] = made[LINEAGE]
    task = component(**{name: made[name] for name in wiring.line.thread[stage]}, **mine)
    if stage in wiring.never_cached:
        task.set_caching_options(False)
    if stage == "register":
        kubernetes.use_secret_as_env(task, STORE_SECRET, STORE_KEYS, optional=True)
        return _signs(task, RELEASE_KEYS, component)
    return _signs(task, BUILDER_KEY, component)


def _signs(task: Any, secret: str, component: Any) -> Any:
    """What a step's statement needs of its pod: the key, the run, the image."""
    kubernetes.use_secret_as_volume(task, secret_name=secret, mount_path=str(MOUNTED))
    kubernetes.use_field_path_as_env(task, RUN_VARIABLE, "metadata.labels['pipeline/runid']")
    kubernetes.add_pod_annotation(task, IMAGE_NOTE, component.component_spec.implementation.container.image)
    kubernetes.use_field_path_as_env(task, IMAGE_VARIABLE, f"metadata.annotations['{IMAGE_NOTE}']")
    return task


def _on_gpus(task: Any, hours: int, count: Any, nodes: Any) -> None:
    """Type and count together: with one of them alone the back end asks for no GPU at all."""
    task.set_accelerator_type(GPU).set_accelerator_limit(count)
    kubernetes.add_node_selector_json(task, node_selector_json=nodes)
    kubernetes.add_toleration(task, key=GPU, operator="Exists", effect="NoSchedule")
    kubernetes.empty_dir_mount(task, volume_name="shm", mount_path="/dev/shm", medium="Memory")
    kubernetes.set_timeout(task, hours * 3600)
