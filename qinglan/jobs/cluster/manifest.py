"""Render the manifest of a job from its spec and its cluster settings (LaunchContext), by pure functions."""

from collections.abc import Mapping, Sequence
from typing import Any

from qinglan.errors import ConfigError
from qinglan.jobs.cluster.job_labels import (
    ATTEMPT_ANNOTATION,
    PART_OF_LABELS,
    RUN_LABEL,
    SPEC_ANNOTATION,
    STEP_LABEL,
    TENANT_LABEL,
    job_name,
    label_value,
    spec_digest,
)
from qinglan.jobs.cluster.launch_context import LaunchContext
from qinglan.jobs.processes import PROCESS_MARK_VARIABLE
from qinglan.jobs.spec import JobSpec

GPU = "nvidia.com/gpu"
TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
CONTAINER = "pytorch"
"""Container name that training-operator requires: https://www.kubeflow.org/docs/components/trainer/legacy-v1/"""

FINISHED_TTL_SECONDS = 24 * 3600
"""Seconds that a finished job stays on the cluster, so that it can be inspected."""

NO_SIDECAR = {"sidecar.istio.io/inject": "false"}
"""Label and annotation that switch off Istio's proxy, which never ends, so that the job would never end either.
Kubeflow's namespaces inject the proxy.

https://istio.io/latest/docs/setup/additional-setup/sidecar-injection/
"""


def render_pytorchjob(spec: JobSpec, launch: LaunchContext, attempt: str = "") -> dict[str, Any]:
    """Render a PyTorchJob. `attempt` is the id of the attempt that creates the job."""
    labels = {
        **PART_OF_LABELS,
        RUN_LABEL: label_value(launch.run),
        STEP_LABEL: label_value(spec.name),
        **({TENANT_LABEL: label_value(launch.tenant)} if launch.tenant else {}),
    }
    body = _body(spec, launch, labels)
    owners = [{**launch.owner, "controller": False, "blockOwnerDeletion": False}] if launch.owner else []
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": job_name(launch.run, spec.name),
            "namespace": launch.namespace,
            "labels": labels,
            "annotations": {SPEC_ANNOTATION: spec_digest(body), ATTEMPT_ANNOTATION: attempt},
            "ownerReferences": owners,
        },
        "spec": body,
    }


def _body(spec: JobSpec, launch: LaunchContext, labels: Mapping[str, str]) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {**labels, **NO_SIDECAR}, "annotations": {**NO_SIDECAR, **launch.annotations}},
        "spec": _pod(spec, launch),
    }
    replica = {"restartPolicy": "Never", "template": template}
    workers = {"Worker": {"replicas": spec.nodes - 1, **replica}} if spec.nodes > 1 else {}
    return {
        "nprocPerNode": str(spec.per_node),
        "runPolicy": {
            "cleanPodPolicy": "Running",
            "activeDeadlineSeconds": round(spec.hours * 3600),
            "ttlSecondsAfterFinished": FINISHED_TTL_SECONDS,
            "backoffLimit": 0,
        },
        "pytorchReplicaSpecs": {"Master": {"replicas": 1, **replica}, **workers},
    }


def _pod(spec: JobSpec, launch: LaunchContext) -> dict[str, Any]:
    task = launch.task
    user = {"runAsUser": launch.user} if launch.user else {}
    group = {"runAsGroup": launch.group} if launch.group else {}
    tolerations = [dict(toleration) for toleration in task.get("tolerations") or ()]
    tolerates_gpus = any(item.get("key") == GPU for item in tolerations)
    return {
        "containers": [_container(spec, launch)],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}, *_volumes_without_secrets(task)],
        # The profile's `cluster.gpu_nodes`, and nothing else: Kubernetes requires all labels of a selector at once.
        # https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodeselector
        "nodeSelector": dict(task.get("node_selector") or {}),
        "tolerations": tolerations if tolerates_gpus else [TOLERATION, *tolerations],
        **({"affinity": task["affinity"]} if task.get("affinity") else {}),
        **({"imagePullSecrets": list(launch.pull_secrets)} if launch.pull_secrets else {}),
        # Set on the pod, so that it also applies to the operator's own init container.
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, **user, **group},
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }


def _container(spec: JobSpec, launch: LaunchContext) -> dict[str, Any]:
    task, folder, argv = launch.task, spec.command.folder, list(spec.command.argv)
    if spec.join is not None:  # the program that joins this pod to the other nodes
        size = ["--nodes", str(spec.nodes), "--per-node", str(spec.per_node)]
        argv = ["python", "-m", "qinglan.jobs.inside", "--join", spec.join, *size, "--", *argv]
    volumes = {volume["name"] for volume in _volumes_without_secrets(task)}
    mounts = [dict(mount) for mount in task.get("volume_mounts") or () if mount["name"] in volumes]
    return {
        "name": CONTAINER,
        "image": launch.image,
        "command": argv,
        **({"workingDir": str(folder)} if folder else {}),
        "env": _environment(task.get("env") or (), spec.command.environment),
        "resources": _resources(spec, task.get("resources") or {}),
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}, *mounts],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _volumes_without_secrets(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the step's volumes except Secrets. The training needs no key, because the step signs the results."""
    return [dict(volume) for volume in task.get("volumes") or () if "secret" not in volume]


def _environment(task: Sequence[Mapping[str, Any]], command: Mapping[str, str]) -> list[dict[str, Any]]:
    """Merge the environment variables of the task and of the command; the command's take precedence.

    Two kinds are left out. The mark of processes (PROCESS_MARK_VARIABLE) changes at each attempt, so a retry would
    not recognise the job of an earlier attempt. Variables with a `fieldRef` read fields of the step's own pod.
    """
    variables = {
        name: {"name": name, "value": value} for name, value in command.items() if name != PROCESS_MARK_VARIABLE
    }
    inherited = {item["name"]: dict(item) for item in task if "fieldRef" not in item.get("valueFrom", {})}
    return list((inherited | variables).values())


def _resources(spec: JobSpec, task: Mapping[str, Any]) -> dict[str, Any]:
    limits, requests = dict(task.get("limits") or {}), dict(task.get("requests") or {})
    for resources in (limits, requests):
        if (count := resources.get(GPU)) is not None and str(count) != str(spec.per_node):
            raise ConfigError(
                f"The task of step {spec.name!r} asks for {count} GPUs, its training for {spec.per_node} a node. "
                "Make them equal in the profile: the task's accelerator limit and the training's number of GPUs."
            )
    limits[GPU] = requests[GPU] = str(spec.per_node)
    return {"limits": limits, "requests": requests}
