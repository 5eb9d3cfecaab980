"""Where a job goes: what the step that launches it knows of its run, its pod and what its task was given."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from qinglan.errors import ConfigError
from qinglan.jobs.job_labels import RUN_LABEL, TENANT_LABEL
from qinglan.kubernetes.api_errors import ApiError, explain_api_error

if TYPE_CHECKING:
    from qinglan.kubernetes.client import Api

KFP_RUN_LABEL = "pipeline/runid"
WORKFLOW_LABEL = "workflows.argoproj.io/workflow"
REQUIRED_VARIABLES = "QINGLAN_RUN and QINGLAN_JOB_IMAGE"


class LaunchContext(NamedTuple):
    namespace: str
    run: str
    """The run's id: with the step it names the job."""

    image: str
    """The launching step's own: what is trained with is what was looked at."""

    tenant: str = ""
    task: Mapping[str, Any] = {}
    """What KFP hands on from the task: the fields of dsl.TaskConfig."""

    owner: Mapping[str, Any] | None = None
    """Whose deletion takes the job along: the run's Workflow, or the pod that launches."""

    user: int | None = None
    """The number of the user that the pods run as; None: as the image says."""

    group: int | None = None
    pull_secrets: Sequence[Mapping[str, str]] = ()
    annotations: Mapping[str, str] = {}
    """Of the pods."""


def read_launch_context(
    api: "Api", task: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> LaunchContext:
    """Where this process is: read from its own pod, or from the environment where there is none."""
    name = environment.get("KFP_POD_NAME") or (_hostname() if environment.get("KUBERNETES_SERVICE_HOST") else "")
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
    """What a step's own pod tells of its run."""
    meta, labels = pod["metadata"], pod["metadata"].get("labels", {})
    containers = pod["spec"]["containers"]
    main = next((one for one in containers if one["name"] == "main"), containers[0])
    run = (
        environment.get("QINGLAN_RUN")
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
    run, image = environment.get("QINGLAN_RUN"), environment.get("QINGLAN_JOB_IMAGE")
    if not run or not image:
        raise ConfigError(
            f"A job on the cluster needs its run and its image, and this is no pod of {namespace} to read them from. "
            f"Start the pipeline on Kubeflow (`qinglan submit`), or set {REQUIRED_VARIABLES}."
        )
    return LaunchContext(namespace, run, image, environment.get("QINGLAN_TENANT", ""), task)


def _owner(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The Workflow that owns the pod: it outlives a retry, which is another pod."""
    for one in meta.get("ownerReferences", ()):
        if one["kind"] == "Workflow":
            return {"apiVersion": one["apiVersion"], "kind": "Workflow", "name": one["name"], "uid": one["uid"]}
    return {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}


def _hostname() -> str:
    return Path("/etc/hostname").read_text().strip()
