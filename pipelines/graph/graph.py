"""Turn a pipeline line into a KFP graph: stages wired by the names of their artifacts, on the machines they need."""

import copy
import dataclasses
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from inspect import Parameter, Signature
from typing import Any, NamedTuple

from kfp import dsl, kubernetes

from pipelines.graph.descriptions import DESCRIPTIONS, describe_component, describe_graph
from pipelines.graph.importer import import_artifact
from pipelines.graph.store_secret import FETCH_ENDPOINT, S3_KEYS, STORE_ENDPOINT, STORE_SECRET
from pipelines.lines.cluster_resources import LOCAL_CLUSTER, Cluster, Machine, Pod, resolve_image
from pipelines.lines.line import BEFORE, LINEAGE, Line, Stage
from qinglan.http.addresses import called_addresses
from qinglan.http.outages import OUTAGE_VARIABLE
from qinglan.lineage.signing.keys import MOUNTED_KEYS
from qinglan.lineage.signing.trust import TRUST_FILE, TRUST_VARIABLE
from qinglan.lineage.steps.record import IMAGE_VARIABLE
from qinglan.llm.host_allowlist import ALLOWED_VARIABLE
from qinglan.models.base_reference import BY_REFERENCE_VARIABLE
from qinglan.models.base_weights import WEIGHTS_VARIABLE
from qinglan.run_id import RUN_VARIABLE
from qinglan.store import STORE_VARIABLE

IMAGE_NOTE = "qinglan/image"

GATEWAY = "http://qinglan-gateway:8300"
"""The gateway's Service in the manifests."""

GATEWAY_URL, RELEASE_NAME = "gateway_url", "release_name"
GATEWAY_STATE = "gateway_state"
"""Input of paid stages: a digest of the gateway's state. KFP's cache answers only for an equal state, and never for
""."""

MONITOR_URL = "monitor_url"
"""Input of a training: URL of the gateway that shows its progress. It is optional."""

INPUT_NAMES = {RELEASE_NAME: "name"}
"""Parameters of the graph that have another name as a component's input."""

GPU = "nvidia.com/gpu"
USER = 65532
"""User id of the images, in steps and in the jobs that steps start, because both write to one volume."""

SCRATCH, WEIGHTS = "/var/lib/qinglan", "/var/lib/qinglan-weights"
"""Mount paths of the scratch volume and the volume of base weights; a job's pods mount scratch at the same path."""

BUILDER_KEY, RELEASE_KEYS = "qinglan-builder-key", "qinglan-release-keys"
"""The Secret with builder.pem, and the Secret with builder.pem and releaser.pem for the one step that releases."""

HOSTS_MAP, HOSTS_KEY = "qinglan-allowed-hosts", "hosts"
"""The ConfigMap in which the operator allows the hosts that steps call themselves, without the gateway."""

TRUST_MAP = "qinglan-trust"
"""The ConfigMap with the trust policy, for the step that deploys and for pods that fetch a model."""

OUTAGE_SECONDS = 900
"""Seconds that a step waits for a gateway that does not answer. Kubernetes replaces the pod of a lost node after
5 min 40 s and detaches its volume 6 min later; the rest is for the start of the new pod."""

COMMIT = re.compile(r"[0-9a-f]{40}")

KINDS = {
    f"{kind.schema_title}@{kind.schema_version}": kind for kind in (dsl.Dataset, dsl.Model, dsl.Artifact, dsl.HTML)
}


class GraphInputs(NamedTuple):
    """The settings, parameters and cluster from which a graph is built, beside its artifacts."""

    settings: Mapping[str, Mapping[str, Any]]
    """Settings of each stage, as constants."""

    parameters: Mapping[str, Any]
    """Values that people choose for each run, by the name of the graph's parameter."""

    cluster: Cluster = LOCAL_CLUSTER

    artifacts: Mapping[str, str] = {}
    """The description of each artifact, by name."""


def line_graph(
    line: Line,
    stages: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]],
    cluster: Cluster = LOCAL_CLUSTER,
    about: str = "",
) -> Any:
    """Build the graph of these stages, from the line's first one on, with each stage's settings as constants.

    Laptop and cluster run this same graph. Its parameters are the line's inputs and the values that people choose for
    each run.
    """
    parameters = {name: item.about for name, item in line.inputs.items()}
    defaults = {RELEASE_NAME: settings["register"]["name"]}
    if line.gateway:
        parameters[GATEWAY_URL] = DESCRIPTIONS[GATEWAY_URL]
        defaults[GATEWAY_URL] = GATEWAY
    parameters[RELEASE_NAME] = DESCRIPTIONS[RELEASE_NAME]

    def graph(*values: Any) -> None:
        chosen = dict(zip(parameters, values, strict=True))
        artifacts = {
            name: import_artifact(name, chosen.pop(name), cluster, about=item.about)
            for name, item in line.inputs.items()
        }
        wire_stages(line, stages, artifacts, GraphInputs(settings, chosen, cluster, line.artifacts))

    # KFP reads names, types and defaults of parameters from the signature, and their descriptions from the docstring
    # (kfp/dsl/component_factory.py), so both are built from the line instead of written as code.
    graph.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(
                name, Parameter.POSITIONAL_OR_KEYWORD, annotation=str, default=defaults.get(name, Parameter.empty)
            )
            for name in parameters
        ]
    )
    described = "\n".join(f"    {name}: {description}" for name, description in parameters.items())
    graph.__doc__ = f"{line.about}\n\nArgs:\n{described}"
    page = describe_graph(f"{line.about} {about}".strip(), parameters, [line.stages[name] for name in stages])
    return dsl.pipeline(graph, name=f"qinglan-{line.name}", description=page)


def wire_stages(line: Line, stages: Sequence[str], artifacts: dict[str, Any], inputs: GraphInputs) -> None:
    """Add the stages one after another; stages behind a gate run only if it promotes the model."""
    verdict: Any = None
    if state := _gateway_state(line, inputs):
        inputs = inputs._replace(parameters={**inputs.parameters, GATEWAY_STATE: state})
    with ExitStack() as promoted:
        for stage in (line.stages[name] for name in stages):
            if stage.behind_gate and verdict is not None:
                # The branch of the second gate is nested in that of the first: KFP lets a task take only artifacts of
                # its own branch and of the branches around it.
                promoted.enter_context(dsl.If(verdict == "promote", name="promoted"))
                verdict = None
            task = _task(stage, artifacts, inputs)
            if stage.is_gate:
                verdict = task.outputs["Output"]
            if not stage.deploys:  # no stage waits for a rollout, so a failed one holds up nothing
                artifacts |= {name: task.outputs[name] for name in task.outputs if name != "Output"}


def partial_graph(line: Line, stages: Sequence[str], uris: dict[str, str], inputs: GraphInputs) -> Any:
    """Build a graph of some of a line's stages; it takes artifacts that exist already."""

    @dsl.pipeline(name=f"qinglan-{stages[0] if len(stages) == 1 else line.name}")
    def graph() -> None:
        types = {
            name: spec.type
            for stage in reversed(stages)
            for name, spec in line.stages[stage].load_component().component_spec.inputs.items()
        }
        artifacts = {
            name: import_artifact(name, uri, inputs.cluster, KINDS[types[name]]) for name, uri in uris.items()
        }
        artifacts[LINEAGE] = artifacts.get(BEFORE)
        wire_stages(line, stages, artifacts, inputs)

    return graph


def _task(stage: Stage, artifacts: Mapping[str, Any], inputs: GraphInputs) -> Any:
    machine, settings = inputs.cluster.machines.get(stage.name), inputs.settings[stage.name]
    component = _with_own_resources(describe_component(stage.load_component(), inputs.artifacts), machine)
    names = component.component_spec.inputs
    arguments = {INPUT_NAMES.get(name, name): value for name, value in inputs.parameters.items()}
    arguments = {name: value for name, value in arguments.items() if name in names}
    if MONITOR_URL in names:
        arguments[MONITOR_URL] = inputs.parameters.get(GATEWAY_URL, GATEWAY if machine else "")
    if GATEWAY_STATE in names:
        arguments.setdefault(GATEWAY_STATE, "")
    if BEFORE in names:
        arguments[BEFORE] = artifacts[LINEAGE]
    stage_inputs = {name: artifacts[name] for name in stage.inputs}
    task = component(**stage_inputs, **arguments, config=stage.config.parse(settings, stage.name).changes())
    image = resolve_image(component.component_spec.implementation.container.image, inputs.cluster.images)
    task.set_container_image(image)
    if python := inputs.cluster.pythons.get(stage.name):
        task.container_spec.command = with_interpreter(task.container_spec.command, python)
    # KFP's cache compares images by name, so only a digest ensures that the code is the same. A branch on the hub may
    # change, too; a commit does not.
    from_branch = settings.get("source") == "hub" and not COMMIT.fullmatch(settings.get("revision", ""))
    named_gateway = not stage.gateway or bool(arguments.get(GATEWAY_STATE))
    task.set_caching_options("@sha256:" in image and stage.cached and named_gateway and not from_branch)
    _mount_signing_key(task, RELEASE_KEYS if stage.registers else BUILDER_KEY, image)
    store = str(inputs.settings.get("register", {}).get("store", "")) if stage.judges else ""
    counts = machine is not None and store.startswith("s3://")  # a laptop's steps have it in their environment
    # A gate that requires counted models finds the store's address in its environment; keys come from the Secret
    # below.
    if counts:
        task.set_env_variable(STORE_VARIABLE, store)
    endpoints = [STORE_ENDPOINT] if stage.registers or stage.deploys or counts else []
    # KFP's launcher finds the key of an imported input in the step's own environment, unless the input is in the
    # bucket of KFP's pipeline root (fetchNonDefaultBuckets in backend/src/v2/component/launcher_v2.go of KFP 2.17).
    if any(artifact.task.importer_spec is not None for artifact in stage_inputs.values()):
        endpoints.append(FETCH_ENDPOINT)
    if endpoints:
        keys = {name: name for name in (*S3_KEYS, *endpoints)}
        kubernetes.use_secret_as_env(task, STORE_SECRET, keys, optional=True)
    if called_addresses(settings, stage.name):
        kubernetes.use_config_map_as_env(task, HOSTS_MAP, {HOSTS_KEY: ALLOWED_VARIABLE}, optional=True)
    if stage.deploys:
        kubernetes.use_config_map_as_env(task, TRUST_MAP, {TRUST_FILE: TRUST_VARIABLE})
    if machine:
        _add_labels(task, stage.name, inputs.cluster.tenant)
        _set_pod_resources(task, machine)
        _set_gpus(task, machine, _launches_job(component))
        _mount_volumes(task, machine)
        if stage.gateway:
            task.set_env_variable(OUTAGE_VARIABLE, str(OUTAGE_SECONDS))
    return task


def _gateway_state(line: Line, inputs: GraphInputs) -> Any:
    """Add a step that reads the gateway's state, and return its output; None if KFP's cache cannot be used anyway."""
    from components.gateway_state import gateway_state

    image = resolve_image(gateway_state.component_spec.implementation.container.image, inputs.cluster.images)
    if not (line.gateway and inputs.cluster.immutable_inputs and "@sha256:" in image):
        return None
    task = gateway_state(gateway_url=inputs.parameters[GATEWAY_URL])
    task.set_container_image(image)
    # The state is the key of later steps in KFP's cache, so it must be read anew in each run.
    task.set_caching_options(False)
    _add_labels(task, "gateway-state", inputs.cluster.tenant)
    _set_pod_resources(task, Machine(Pod(cpu=1, memory=1, hours=1)))
    task.set_env_variable(OUTAGE_VARIABLE, str(OUTAGE_SECONDS))
    return task.output


def with_interpreter(command: Sequence[str], python: str) -> list[str]:
    """Replace the interpreter in the shell line of a component's command; the component's code stays as it is.

    kfp.local replaces every `python3` in a command with its own interpreter, even inside a path. `python''3` avoids
    that, and means the same to a shell.
    """
    path = shlex.quote(python).replace("python3", "python''3")
    return [word.replace("python3 -m", f"{path} -m") if "executor_main" in word else word for word in command]


def _launches_job(component: Any) -> bool:
    return bool(component.component_spec.task_config_passthroughs)


def _with_own_resources(component: Any, machine: Machine | None) -> Any:
    """Request the machine's resources for the step's own pod if the machine has no GPU: no job is then started."""
    if machine is None or machine.gpus or not _launches_job(component):
        return component
    spec, in_own_pod = component.component_spec, copy.copy(component)
    passed = [dataclasses.replace(field, apply_to_task=True) for field in spec.task_config_passthroughs]
    in_own_pod.component_spec = dataclasses.replace(spec, task_config_passthroughs=passed)
    return in_own_pod


def _mount_signing_key(task: Any, secret: str, image: str) -> None:
    """Give a step's pod all that its signed statement needs: the key, the run's id and the image's name."""
    kubernetes.use_secret_as_volume(task, secret_name=secret, mount_path=str(MOUNTED_KEYS))
    # KFP labels each pod with the id of its run; the downward API hands it to the step
    # (https://kubernetes.io/docs/concepts/workloads/pods/downward-api/).
    kubernetes.use_field_path_as_env(task, RUN_VARIABLE, "metadata.labels['pipeline/runid']")
    kubernetes.add_pod_annotation(task, IMAGE_NOTE, image)
    kubernetes.use_field_path_as_env(task, IMAGE_VARIABLE, f"metadata.annotations['{IMAGE_NOTE}']")


def _add_labels(task: Any, stage: str, tenant: str) -> None:
    """Add the labels that network policies use; a job that the step launches reads its tenant from them."""
    labels = {"app.kubernetes.io/part-of": "qinglan", "qinglan.dev/step": stage, "qinglan.dev/tenant": tenant}
    for name, value in labels.items():
        if value:
            kubernetes.add_pod_label(task, name, value)


def _set_pod_resources(task: Any, machine: Machine) -> None:
    """Set what quotas and Pod Security require of each pod.

    https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
    """
    pod = machine.pod
    task.set_cpu_request(str(pod.cpu)).set_cpu_limit(str(pod.cpu))
    task.set_memory_request(f"{pod.memory}Gi").set_memory_limit(f"{pod.memory}Gi")
    kubernetes.set_security_context(task, run_as_user=USER, run_as_group=USER, run_as_non_root=True)
    kubernetes.set_timeout(task, pod.hours * 3600)


def _set_gpus(task: Any, machine: Machine, handed_on: bool) -> None:
    """Set a GPU's type and count together: with only one of them KFP 2.17's driver requests no GPU."""
    if not machine.gpus:
        return
    task.set_accelerator_type(GPU).set_accelerator_limit(machine.gpus)
    for label, value in machine.gpu_nodes.items():
        kubernetes.add_node_selector(task, label, value)
    kubernetes.add_toleration(task, key=GPU, operator="Exists", effect="NoSchedule")
    if not handed_on:  # a job's pods get their own folder, not the step's
        # /dev/shm has 64 MiB by default, too little for NCCL and data loaders.
        kubernetes.empty_dir_mount(task, volume_name="shm", mount_path="/dev/shm", medium="Memory")


def _mount_volumes(task: Any, machine: Machine) -> None:
    if machine.scratch:
        kubernetes.mount_pvc(task, pvc_name=machine.scratch, mount_path=SCRATCH)
        task.set_env_variable("QINGLAN_CACHE", f"{SCRATCH}/cache")
    if machine.base_weights:
        kubernetes.mount_pvc(task, pvc_name=machine.base_weights, mount_path=WEIGHTS)
        task.set_env_variable(WEIGHTS_VARIABLE, WEIGHTS)
        task.set_env_variable(BY_REFERENCE_VARIABLE, "1")
