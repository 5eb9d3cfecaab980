"""A step's own pod tells of its run."""

from typing import Any

import pytest

from components.training.kubeflow.job_runner import context_from_pod, job_runner, read_launch_context
from qinglan.errors import ConfigError
from qinglan.jobs import LocalRunner
from qinglan.kubernetes.client import Api

WORKFLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "rewriter-x", "uid": "w1"}
POD: dict[str, Any] = {
    "metadata": {
        "name": "rewriter-x-sft-1", "namespace": "team", "uid": "p1",
        "labels": {
            "pipeline/runid": "9d1c", "workflows.argoproj.io/workflow": "rewriter-x", "qinglan.dev/tenant": "five",
        },
        "ownerReferences": [{**WORKFLOW, "controller": True}],
    },
    "spec": {
        "containers": [{"name": "wait", "image": "argoexec"}, {"name": "main", "image": "qinglan/sft@sha256:0"}],
        "imagePullSecrets": [{"name": "pull"}],
    },
}  # fmt: skip


def without(part: str, name: str) -> dict[str, Any]:
    meta = {**POD["metadata"], part: {key: value for key, value in POD["metadata"][part].items() if key != name}}
    return {**POD, "metadata": meta}


def test_a_kfp_pod_tells_run_image_tenant_and_workflow() -> None:
    place = context_from_pod(POD, {"resources": {}}, {})

    assert (place.namespace, place.run, place.image, place.tenant) == ("team", "9d1c", "qinglan/sft@sha256:0", "five")
    assert place.owner == WORKFLOW
    assert place.pull_secrets == [{"name": "pull"}]
    assert place.task == {"resources": {}}


def test_without_a_run_s_id_its_workflow_names_it() -> None:
    assert context_from_pod(without("labels", "pipeline/runid"), {}, {}).run == "rewriter-x"


def test_without_a_workflow_the_pod_owns_the_job() -> None:
    bare = {**POD, "metadata": {**POD["metadata"], "ownerReferences": []}}

    owner = {"apiVersion": "v1", "kind": "Pod", "name": "rewriter-x-sft-1", "uid": "p1"}
    assert context_from_pod(bare, {}, {}).owner == owner


def test_the_environment_may_say_otherwise() -> None:
    place = context_from_pod(POD, {}, {"QINGLAN_RUN": "mine", "QINGLAN_JOB_IMAGE": "other"})

    assert (place.run, place.image) == ("mine", "other")


def test_outside_of_a_pod_the_environment_must_say() -> None:
    api = Api(None, "team")

    assert read_launch_context(api, {}, {"QINGLAN_RUN": "r", "QINGLAN_JOB_IMAGE": "i"})[:3] == ("team", "r", "i")
    with pytest.raises(ConfigError, match="set QINGLAN_RUN and QINGLAN_JOB_IMAGE"):
        read_launch_context(api, {}, {"QINGLAN_RUN": "r"})


@pytest.mark.parametrize(
    ("device", "task"),
    [("cpu", {"resources": {"limits": {}}}), ("cuda", None), ("cuda", {}), ("cuda", {"resources": None})],
)
def test_a_laptop_and_a_cpu_run_here(device: str, task: dict[str, Any] | None) -> None:
    assert isinstance(job_runner(device, task), LocalRunner)


def test_a_gpu_with_a_task_s_resources_runs_on_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(ConfigError, match="no file /nowhere"):
        job_runner("cuda", {"resources": {"limits": {"cpu": "1"}}})
