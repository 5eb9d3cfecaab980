"""A job as the cluster is told of it."""

import re
from pathlib import Path
from typing import Any

import pytest

from qinglan.errors import ConfigError
from qinglan.jobs import Command, JobSpec
from qinglan.jobs.cluster.job_labels import (
    ATTEMPT_ANNOTATION,
    RUN_LABEL,
    SPEC_ANNOTATION,
    STEP_LABEL,
    TENANT_LABEL,
    job_name,
    label_value,
)
from qinglan.jobs.cluster.launch_context import LaunchContext
from qinglan.jobs.cluster.manifest import GPU, TOLERATION, render_pytorchjob
from qinglan.jobs.processes import PROCESS_MARK_VARIABLE

SPEC_OF_TWO = JobSpec(
    "sft", Command(["swift", "sft"], {"NCCL_DEBUG": "WARN"}, Path("/work")), nodes=2, per_node=8, join="torchrun"
)
SECRET = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
VOLUME = {"name": "scratch", "persistentVolumeClaim": {"claimName": "qinglan-scratch"}}
MOUNT = {"name": "scratch", "mountPath": "/var/lib/qinglan"}
TASK = {
    "resources": {"limits": {"cpu": "64", "memory": "800Gi", GPU: "8"}, "requests": {"cpu": "32"}},
    "tolerations": [{"key": "team", "operator": "Exists"}],
    "node_selector": {"pool": "training"},
    "affinity": {"nodeAffinity": {}},
    "env": [SECRET, {"name": "NCCL_DEBUG", "value": "x"}],
    "volumes": [VOLUME],
    "volume_mounts": [MOUNT],
}  # fmt: skip
OWNER = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "w", "uid": "u"}
PLACE = LaunchContext("team", "run-1", "qinglan/sft@sha256:0", "fivedoctors", TASK, OWNER, user=1001, group=1001)


def test_the_steps_keys_and_what_it_reads_off_its_own_pod_stay_with_it() -> None:
    key = {"name": "key", "secret": {"secretName": "qinglan-builder-key"}}
    run_id = {"name": "QINGLAN_RUN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['pipeline/runid']"}}}
    task = {
        **TASK, "env": [SECRET, run_id], "volumes": [VOLUME, key],
        "volume_mounts": [MOUNT, {"name": "key", "mountPath": "/etc/qinglan/keys"}],
    }  # fmt: skip

    pod = pod_of(pytorchjob := render_pytorchjob(SPEC_OF_TWO, PLACE._replace(task=task)))

    assert [volume["name"] for volume in pod["volumes"]] == ["shm", "scratch"]
    assert [volume_mount["name"] for volume_mount in container_of(pytorchjob)["volumeMounts"]] == ["shm", "scratch"]
    assert [item["name"] for item in container_of(pytorchjob)["env"]] == ["KEY", "NCCL_DEBUG"]


def replica(manifest: dict[str, Any], kind: str = "Master") -> dict[str, Any]:
    result: dict[str, Any] = manifest["spec"]["pytorchReplicaSpecs"][kind]
    return result


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = replica(manifest)["template"]["spec"]
    return result


def container_of(manifest: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = pod_of(manifest)["containers"][0]
    return result


def test_the_jobs_pods_get_what_the_task_has_and_no_more_rights() -> None:
    manifest = render_pytorchjob(SPEC_OF_TWO, PLACE)
    pod, container = pod_of(manifest), container_of(manifest)

    assert container["resources"] == {
        "limits": {"cpu": "64", "memory": "800Gi", GPU: "8"}, "requests": {"cpu": "32", GPU: "8"},
    }  # fmt: skip
    assert pod["tolerations"] == [TOLERATION, {"key": "team", "operator": "Exists"}]
    assert pod["affinity"] == {"nodeAffinity": {}}
    assert VOLUME in pod["volumes"]
    assert MOUNT in container["volumeMounts"]
    assert container["image"] == PLACE.image
    assert container["workingDir"] == "/work"
    assert pod["securityContext"] == {
        "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": 1001, "runAsGroup": 1001,
    }  # fmt: skip
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert pod["automountServiceAccountToken"] is False
    environment = {item["name"]: item for item in container["env"]}
    assert environment["NCCL_DEBUG"]["value"] == "WARN", "the command's wins over the task's"
    assert environment["KEY"] == SECRET


@pytest.mark.parametrize(
    "labels",
    [{"nvidia.com/gpu.product": "NVIDIA-H200", "pool": "training"}, {"eks.amazonaws.com/nodegroup": "p5"}, {}],
)
def test_the_jobs_pods_go_to_the_nodes_that_the_profile_names_and_no_label_is_added(labels: dict[str, str]) -> None:
    """Kubernetes requires all labels of a selector at once: an A100's beside those of another cloud match no node."""
    pod = pod_of(render_pytorchjob(SPEC_OF_TWO, PLACE._replace(task={**TASK, "node_selector": labels})))

    assert pod["nodeSelector"] == labels


def test_every_pod_joins_before_it_trains() -> None:
    manifest = render_pytorchjob(SPEC_OF_TWO, PLACE)

    assert container_of(manifest)["command"] == [
        "python", "-m", "qinglan.jobs.inside", "--join", "torchrun", "--nodes", "2", "--per-node", "8", "--", "swift",
        "sft",
    ]  # fmt: skip
    assert replica(manifest, "Worker")["replicas"] == 1
    assert replica(manifest, "Worker")["template"] == replica(manifest)["template"]


def test_a_job_of_one_node_is_a_master_that_runs_the_command_itself() -> None:
    manifest = render_pytorchjob(JobSpec("style", Command(["python", "train.py"])), PLACE._replace(task={}))

    assert list(manifest["spec"]["pytorchReplicaSpecs"]) == ["Master"]
    assert container_of(manifest)["command"] == ["python", "train.py"]


def test_a_job_has_a_deadline_and_no_pod_of_it_is_started_again() -> None:
    manifest = render_pytorchjob(SPEC_OF_TWO._replace(hours=1.5), PLACE)

    policy = manifest["spec"]["runPolicy"]
    assert (policy["activeDeadlineSeconds"], policy["backoffLimit"], policy["cleanPodPolicy"]) == (5400, 0, "Running")
    assert policy["ttlSecondsAfterFinished"] > 0
    assert replica(manifest)["restartPolicy"] == "Never"


def test_labels_owner_and_attempt() -> None:
    meta = render_pytorchjob(SPEC_OF_TWO, PLACE, "a1")["metadata"]

    assert meta["labels"] == {
        "app.kubernetes.io/part-of": "qinglan", RUN_LABEL: "run-1", STEP_LABEL: "sft", TENANT_LABEL: "fivedoctors",
    }  # fmt: skip
    assert meta["ownerReferences"] == [{**OWNER, "controller": False, "blockOwnerDeletion": False}]
    assert meta["annotations"][ATTEMPT_ANNOTATION] == "a1"


def test_a_retry_has_the_same_digest_and_another_command_has_another() -> None:
    def digest(spec: JobSpec, place: LaunchContext = PLACE) -> str:
        return str(render_pytorchjob(spec, place, "any")["metadata"]["annotations"][SPEC_ANNOTATION])

    marked = SPEC_OF_TWO.command._replace(
        environment={"NCCL_DEBUG": "WARN", PROCESS_MARK_VARIABLE: "of this attempt"}
    )
    other = SPEC_OF_TWO.command._replace(argv=["swift", "pt"])
    assert digest(SPEC_OF_TWO) == digest(SPEC_OF_TWO._replace(command=marked))
    assert digest(SPEC_OF_TWO) == digest(SPEC_OF_TWO, PLACE._replace(owner=None))
    assert digest(SPEC_OF_TWO) != digest(SPEC_OF_TWO._replace(command=other))
    assert digest(SPEC_OF_TWO) != digest(SPEC_OF_TWO, PLACE._replace(image="qinglan/sft@sha256:1"))


@pytest.mark.parametrize("where", ["limits", "requests"])
def test_a_task_with_another_number_of_gpus_is_refused(where: str) -> None:
    task = {"resources": {where: {GPU: "4"}}}

    with pytest.raises(ConfigError, match="asks for 4 GPUs, its training for 8 a node"):
        render_pytorchjob(SPEC_OF_TWO, PLACE._replace(task=task))


@pytest.mark.parametrize("step", ["sft", "SFT_v2", "训练", "3rd step", "x" * 300, "-a-", ""])
@pytest.mark.parametrize("run", ["r", "9d1c0f6e-3d53-4a7c-8a3e-1f6f9f0d5a55", "y" * 300])
def test_names_leave_room_for_the_pods_and_are_names_of_services_too(step: str, run: str) -> None:
    name = job_name(run, step)

    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert len(f"{name}-worker-9999") <= 63
    assert name == job_name(run, step)
    assert name != job_name(f"{run}2", step)
    assert name != job_name(run, f"{step}2")


@pytest.mark.parametrize("text", ["", "abc", "a.b_c-d", "五", "a b", "z" * 64, "-a", "a" * 62 + "-b"])
def test_labels_hold_any_text(text: str) -> None:
    value = label_value(text)

    assert len(value) <= 63
    assert re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", value)
    assert value != label_value(f"{text}2")
