"""Where a job goes: what the step that launches it knows of its run, its pod and what its task was given."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from qinglan.errors import ConfigError
from qinglan.jobs.names import RUN, TENANT
from qinglan.kubernetes.refusals import Refusal, explain

if TYPE_CHECKING:
    from qinglan.kubernetes.client import Api

KFP_RUN = "pipeline/runid"
WORKFLOW = "workflows.argoproj.io/workflow"
SETTINGS = "QINGLAN_RUN and QINGLAN_JOB_IMAGE"


class Placement(NamedTuple):
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


def placed(api: "Api", task: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Placement:
    """Where this process is: read from its own pod, or from the environment where there is none."""
    name = environment.get("KFP_POD_NAME") or (_hostname() if environment.get("KUBERNETES_SERVICE_HOST") else "")
    try:
        pod = api.get("pods", name) if name else None
    except Refusal as refusal:
        raise explain(refusal, api.host, api.namespace) from refusal
    if pod is None:
        return _told(api.namespace, task, environment)
    return of_pod(pod, task, environment)._replace(user=os.getuid() or None, group=os.getgid() or None)


def of_pod(pod: Mapping[str, Any], task: Mapping[str, Any], environment: Mapping[str, str]) -> Placement:
    """What a step's own pod tells of its run."""
    meta, labels = pod["metadata"], pod["metadata"].get("labels", {})
    containers = pod["spec"]["containers"]
    main = next((one for one in containers if one["name"] == "main"), containers[0])
    run = environment.get("QINGLAN_RUN") or labels.get(RUN) or labels.get(KFP_RUN) or labels.get(WORKFLOW)
    return Placement(
        namespace=meta["namespace"],
        run=run or meta["name"],
        image=environment.get("QINGLAN_JOB_IMAGE") or main["image"],
        tenant=labels.get(TENANT, ""),
        task=task,
        owner=_owner(meta),
        pull_secrets=pod["spec"].get("imagePullSecrets", ()),
    )


def _told(namespace: str, task: Mapping[str, Any], environment: Mapping[str, str]) -> Placement:
    run, image = environment.get("QINGLAN_RUN"), environment.get("QINGLAN_JOB_IMAGE")
    if not run or not image:
        raise ConfigError(
            f"A job on the cluster needs its run and its image, and this is no pod of {namespace} to read them from. "
            f"Start the pipeline on Kubeflow (`qinglan submit`), or set {SETTINGS}."
        )
    return Placement(namespace, run, image, environment.get("QINGLAN_TENANT", ""), task)


def _owner(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The Workflow that owns the pod: it outlives a retry, which is another pod."""
    for one in meta.get("ownerReferences", ()):
        if one["kind"] == "Workflow":
            return {"apiVersion": one["apiVersion"], "kind": "Workflow", "name": one["name"], "uid": one["uid"]}
    return {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}


def _hostname() -> str:
    return Path("/etc/hostname").read_text().strip()
