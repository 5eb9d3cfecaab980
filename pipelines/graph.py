"""How a line becomes a graph: stages wired by the names of their artifacts, on the machines that they want."""

import copy
import dataclasses
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from kfp import dsl, kubernetes

from pipelines.cluster_resources import LOCAL_CLUSTER, Cluster, Machine, resolve_image
from pipelines.stage_lines import BEFORE, LINEAGE, StageLine
from pipelines.store_secret import FETCH_ENDPOINT, S3_KEYS, STORE_ENDPOINT, STORE_SECRET
from qinglan.lineage.keys import MOUNTED_KEYS
from qinglan.lineage.record import IMAGE_VARIABLE, RUN_VARIABLE
from qinglan.lineage.trust import TRUST_FILE, TRUST_VARIABLE

IMAGE_NOTE = "qinglan/image"

GATEWAY = "http://qinglan-gateway:8300"
"""The Service that the manifests make."""

GPU = "nvidia.com/gpu"
USER = 65532
"""Whom the images run as, in steps and in the jobs that they start: both write to one volume."""

SCRATCH, WEIGHTS = "/var/lib/qinglan", "/var/lib/qinglan-weights"
"""Where the volumes are mounted; a job's pods have the first at the same place."""

BUILDER_KEY, RELEASE_KEYS = "qinglan-builder-key", "qinglan-release-keys"
"""Secrets: builder.pem; and builder.pem with releaser.pem, for the one step that releases."""

TRUST_MAP = "qinglan-trust"
"""A ConfigMap: whose signatures count, for the step that deploys and for pods that fetch a model."""

RETRIES = 2
"""For a lost node, a pod that made room for another, a gateway that was away: what was paid for, and a training up to
its last checkpoint, are not done again."""

COMMIT = re.compile(r"[0-9a-f]{40}")

KINDS = {
    f"{kind.schema_title}@{kind.schema_version}": kind for kind in (dsl.Dataset, dsl.Model, dsl.Artifact, dsl.HTML)
}


class Wiring(NamedTuple):
    """A line's components, and what the cluster must know of them."""

    line: StageLine
    components: Mapping[str, Any]
    """By stage."""

    never_cached: frozenset[str]
    """KFP's cache key knows nothing of what these stages depend on, or of what they do outside."""

    never_retried: frozenset[str]
    """They compute from their inputs alone, in seconds: what failed once fails again."""


class GraphInputs(NamedTuple):
    """What a graph is built of, beside its artifacts."""

    settings: Mapping[str, Mapping[str, Any]]
    """Each stage's, as constants."""

    parameters: Mapping[str, Any]
    """What people choose for each run, by the name of a component's input."""

    cluster: Cluster = LOCAL_CLUSTER


def import_artifact(uri: Any, kind: Any = dsl.Dataset, immutable: bool = False) -> Any:
    """An artifact that no stage made. KFP's cache knows it by its import, so bytes that may change come in anew."""
    # No display name: the 2.17 back end looks an importer up by its task name, and records the display name.
    return dsl.importer(artifact_uri=uri, artifact_class=kind, reimport=not immutable).output


def wire_stages(wiring: Wiring, stages: Sequence[str], made: dict[str, Any], told: GraphInputs) -> None:
    """The stages one after another, and behind the gate what only a promoted model gets to."""
    verdict: Any = None
    with ExitStack() as promoted:
        for stage in stages:
            if stage in wiring.line.behind_the_gate and verdict is not None:
                # One branch for all of them: a task may not take what another branch has made.
                promoted.enter_context(dsl.If(verdict == "promote", name="promoted"))
                verdict = None
            task = _task(wiring, stage, made, told)
            if stage == "gate":
                verdict = task.outputs["Output"]
            made |= {name: task.outputs[name] for name in task.outputs if name != "Output"}


def single_stage_graph(wiring: Wiring, stage: str, inputs: dict[str, str], told: GraphInputs) -> Any:
    """A graph of one stage, fed from artifacts that are there already."""

    @dsl.pipeline(name=f"qinglan-{stage}")
    def graph() -> None:
        wanted = wiring.components[stage].component_spec.inputs
        made = {name: import_artifact(uri, KINDS[wanted[name].type]) for name, uri in inputs.items()}
        made[LINEAGE] = made.get(BEFORE)
        _task(wiring, stage, made, told)

    return graph


def _task(wiring: Wiring, stage: str, made: Mapping[str, Any], told: GraphInputs) -> Any:
    """One stage, with the artifacts and parameters that it names."""
    machine = told.cluster.machines.get(stage)
    component = _with_own_resources(wiring.components[stage], machine)
    wanted = set(component.component_spec.inputs)
    mine = {name: value for name, value in told.parameters.items() if name in wanted}
    if BEFORE in wanted:
        mine[BEFORE] = made[LINEAGE]
    artifacts = {name: made[name] for name in wiring.line.thread[stage]}
    task = component(**artifacts, **mine, config=dict(told.settings[stage]))
    image = resolve_image(component.component_spec.implementation.container.image, told.cluster.images)
    task.set_container_image(image)
    moves = stage in wiring.never_cached or _from_a_branch(stage, told.settings[stage])
    # KFP's cache takes a tag at its word: only a digest says that the code is the same.
    task.set_caching_options("@sha256:" in image and not moves)
    _mount_signing_key(task, RELEASE_KEYS if stage == "register" else BUILDER_KEY, image)
    endpoints = [STORE_ENDPOINT] if stage in ("register", "deploy") else []
    if any(map(_imported, artifacts.values())):
        endpoints.append(FETCH_ENDPOINT)
    if endpoints:
        keys = {name: name for name in (*S3_KEYS, *endpoints)}
        kubernetes.use_secret_as_env(task, STORE_SECRET, keys, optional=True)
    if stage == "deploy":
        kubernetes.use_config_map_as_env(task, TRUST_MAP, {TRUST_FILE: TRUST_VARIABLE})
    if machine:
        _add_labels(task, stage, told.cluster.tenant)
        _set_pod_resources(task, machine, 0 if stage in wiring.never_retried else RETRIES)
        _set_gpus(task, machine, _launches_job(component))
        _mount_volumes(task, machine)
    return task


def _imported(artifact: Any) -> bool:
    """Tell whether an importer brings it. KFP's launcher then finds the key in the step's own environment alone,
    unless it lies in the bucket of KFP's pipeline root (fetchNonDefaultBuckets in KFP 2.17's launcher_v2.go).
    """
    return artifact.task.importer_spec is not None


def _from_a_branch(stage: str, settings: Mapping[str, Any]) -> bool:
    """A hub's branch may point elsewhere tomorrow; a commit does not."""
    return stage == "base" and settings["source"] == "hub" and not COMMIT.fullmatch(settings["revision"])


def _launches_job(component: Any) -> bool:
    """Whether the step hands its GPUs on to a job."""
    return bool(component.component_spec.task_config_passthroughs)


def _with_own_resources(component: Any, machine: Machine | None) -> Any:
    """A step that could hand its machine on to a job and has no GPU trains in its own pod, and needs it there."""
    if machine is None or machine.gpus or not _launches_job(component):
        return component
    kept = copy.copy(component)
    handed = [
        dataclasses.replace(one, apply_to_task=True) for one in component.component_spec.task_config_passthroughs
    ]
    kept.component_spec = dataclasses.replace(component.component_spec, task_config_passthroughs=handed)
    return kept


def _mount_signing_key(task: Any, secret: str, image: str) -> None:
    """What a step's statement needs of its pod: the key, the run, the image."""
    kubernetes.use_secret_as_volume(task, secret_name=secret, mount_path=str(MOUNTED_KEYS))
    kubernetes.use_field_path_as_env(task, RUN_VARIABLE, "metadata.labels['pipeline/runid']")
    kubernetes.add_pod_annotation(task, IMAGE_NOTE, image)
    kubernetes.use_field_path_as_env(task, IMAGE_VARIABLE, f"metadata.annotations['{IMAGE_NOTE}']")


def _add_labels(task: Any, stage: str, tenant: str) -> None:
    """By which network policies and people know the pod, and a job that it launches its tenant."""
    labels = {"app.kubernetes.io/part-of": "qinglan", "qinglan.dev/step": stage, "qinglan.dev/tenant": tenant}
    for name, value in labels.items():
        if value:
            kubernetes.add_pod_label(task, name, value)


def _set_pod_resources(task: Any, machine: Machine, retries: int) -> None:
    """What quotas and Pod Security ask of any pod."""
    pod = machine.pod
    task.set_cpu_request(str(pod.cpu)).set_cpu_limit(str(pod.cpu))
    task.set_memory_request(f"{pod.memory}Gi").set_memory_limit(f"{pod.memory}Gi")
    kubernetes.set_security_context(task, run_as_user=USER, run_as_group=USER, run_as_non_root=True)
    kubernetes.set_timeout(task, pod.hours * 3600)
    if retries:
        # Argo counts from the first attempt's start: KFP's default of an hour ends a longer stage's only retry.
        whole = (retries + 1) * pod.hours * 3600
        task.set_retry(retries, backoff_duration="60s", backoff_factor=2.0, backoff_max_duration=f"{whole}s")


def _set_gpus(task: Any, machine: Machine, handed_on: bool) -> None:
    """Type and count together: with one of them alone the back end asks for no GPU at all."""
    if not machine.gpus:
        return
    task.set_accelerator_type(GPU).set_accelerator_limit(machine.gpus)
    for label, value in machine.gpu_nodes.items():
        kubernetes.add_node_selector(task, label, value)
    kubernetes.add_toleration(task, key=GPU, operator="Exists", effect="NoSchedule")
    if not handed_on:  # an empty folder stays with the step; a job makes its own
        kubernetes.empty_dir_mount(task, volume_name="shm", mount_path="/dev/shm", medium="Memory")


def _mount_volumes(task: Any, machine: Machine) -> None:
    """Checkpoints outlive the pod; base models are read where there is no way to the hub."""
    if machine.scratch:
        kubernetes.mount_pvc(task, pvc_name=machine.scratch, mount_path=SCRATCH)
        task.set_env_variable("QINGLAN_CACHE", f"{SCRATCH}/cache")
    if machine.base_weights:
        kubernetes.mount_pvc(task, pvc_name=machine.base_weights, mount_path=WEIGHTS)
        task.set_env_variable("QINGLAN_BASE_WEIGHTS", WEIGHTS)
