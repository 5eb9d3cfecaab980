"""Choose where a training step runs its jobs. The run that the jobs belong to is read from the variable QINGLAN_RUN;
if it is not set, from the labels or the name of the step's own pod."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qinglan.errors import ConfigError
from qinglan.jobs import LocalRunner, Runner
from qinglan.jobs.cluster.job_labels import RUN_LABEL, TENANT_LABEL
from qinglan.jobs.cluster.launch_context import LaunchContext
from qinglan.kubernetes.api_errors import ApiError, explain_api_error
from qinglan.run_id import RUN_VARIABLE

if TYPE_CHECKING:
    from qinglan.kubernetes.client import Api

KFP_RUN_LABEL = "pipeline/runid"
"""Label in which KFP's pods hold the run's id (kubeflow/pipelines, backend/src/common/util/consts.go)."""

WORKFLOW_LABEL = "workflows.argoproj.io/workflow"


def job_runner(device: str, task_config: Mapping[str, Any] | None) -> Runner:
    """Return a runner on the cluster for a GPU task with resources from Kubeflow, else a runner on this machine.

    `task_config` has the fields of dsl.TaskConfig, which are empty on a laptop.
    https://kubeflow-pipelines.readthedocs.io/en/stable/source/dsl.html#kfp.dsl.TaskConfig
    """
    if device == "cpu" or not task_config or not task_config.get("resources"):
        return LocalRunner()
    from qinglan.jobs.cluster.pytorchjob import PyTorchJobRunner
    from qinglan.kubernetes.client import connect

    api = connect()
    return PyTorchJobRunner(api, read_launch_context(api, task_config))


def read_launch_context(
    api: "Api", task: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> LaunchContext:
    """Read run, image and owner from this process's own pod; outside a pod, from the environment."""
    name = environment.get("KFP_POD_NAME")
    if not name and environment.get("KUBERNETES_SERVICE_HOST"):
        # A pod's host name is its name: https://kubernetes.io/docs/concepts/workloads/pods/pod-hostname/
        name = Path("/etc/hostname").read_text().strip()
    try:
        pod = api.get("pods", name) if name else None
    except ApiError as refusal:
        raise explain_api_error(refusal, api.host, api.namespace) from refusal
    if pod is None:
        return _context_from_environment(api.namespace, task, environment)
    return context_from_pod(pod, task, environment)._replace(user=os.getuid() or None, group=os.getgid() or None)


def context_from_pod(
    pod: Mapping[str, Any], task: Mapping[str, Any], environment: Mapping[str, str]
) -> LaunchContext:
    meta, labels = pod["metadata"], pod["metadata"].get("labels", {})
    # Argo adds sidecars to a step's pod and calls the step's own container `main`.
    containers = pod["spec"]["containers"]
    main = next((container for container in containers if container["name"] == "main"), containers[0])
    run = (
        environment.get(RUN_VARIABLE)
        or labels.get(RUN_LABEL)
        or labels.get(KFP_RUN_LABEL)
        or labels.get(WORKFLOW_LABEL)
    )
    return LaunchContext(
        namespace=meta["namespace"],
        run=run or meta["name"],
        image=environment.get("QINGLAN_JOB_IMAGE") or main["image"],
        tenant=labels.get(TENANT_LABEL, ""),
        task=task,
        owner=_owner(meta),
        pull_secrets=pod["spec"].get("imagePullSecrets", ()),
    )


def _context_from_environment(
    namespace: str, task: Mapping[str, Any], environment: Mapping[str, str]
) -> LaunchContext:
    run, image = environment.get(RUN_VARIABLE), environment.get("QINGLAN_JOB_IMAGE")
    if not run or not image:
        raise ConfigError(
            f"A job on the cluster needs its run and its image, and this is no pod of {namespace} to read them from. "
            f"Start the pipeline on Kubeflow (`qinglan submit`), or set {RUN_VARIABLE} and QINGLAN_JOB_IMAGE."
        )
    return LaunchContext(namespace, run, image, environment.get("QINGLAN_TENANT", ""), task)


def _owner(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Workflow that owns the pod, since a retry has another pod; if there is none, the pod."""
    for owner in meta.get("ownerReferences", ()):
        if owner["kind"] == "Workflow":
            return {"apiVersion": owner["apiVersion"], "kind": "Workflow", "name": owner["name"], "uid": owner["uid"]}
    return {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
