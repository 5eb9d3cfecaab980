"""A snapshot of a job, its pods and their refusals: plain data, folded from the events of a watch."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from qinglan.jobs.cluster.pod_status import pod_failure

JOB_NAME_LABEL = "training.kubeflow.org/job-name"


class JobSnapshot(NamedTuple):
    """The last known state of a job."""

    job: Mapping[str, Any] | None = None
    pods: Mapping[str, Mapping[str, Any]] = {}
    """Pods by name; a deleted pod stays, with the time of its deletion, because its failure is read afterwards."""

    refused: Mapping[str, Any] | None = None
    """The last event of a pod that could not be created."""


def slim_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a job that is read here."""
    replicas = {
        kind: {"replicas": replica.get("replicas", 1)}
        for kind, replica in job["spec"].get("pytorchReplicaSpecs", {}).items()
    }
    spec = {"runPolicy": job["spec"].get("runPolicy", {}), "pytorchReplicaSpecs": replicas}
    return {"metadata": _meta(job), "spec": spec, "status": job.get("status") or {}}


def slim_pod(pod: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """A pod with three facts that the server forgets: that it ran, when it was deleted, and how the earlier pod of
    this name ended (an operator may create one more pod before it knows that the job is over)."""
    same = before is not None and before["metadata"]["uid"] == pod["metadata"]["uid"]
    status = pod.get("status") or {}
    ran = status.get("phase") in ("Running", "Succeeded") or _ended(status)
    return {
        "metadata": {**_meta(pod), "ownerReferences": pod["metadata"].get("ownerReferences", [])},
        "status": status,
        "ran": ran or bool(same and before and before["ran"]),
        "gone": None,
        "earlier": _earlier(pod, before) if before is not None else {},
    }


def _earlier(pod: Mapping[str, Any], before: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status of the pod that this one replaces, in the same job."""
    if before["metadata"].get("ownerReferences") != pod["metadata"].get("ownerReferences", []):
        return {}
    replaces = before["metadata"]["uid"] != pod["metadata"]["uid"]
    status: Mapping[str, Any] = before["status"] if replaces and pod_failure(before) else before["earlier"]
    return status


def _ended(status: Mapping[str, Any]) -> bool:
    return any("terminated" in container.get("state", {}) for container in status.get("containerStatuses", ()))


def slim_event(event: Mapping[str, Any]) -> dict[str, Any]:
    about = event["involvedObject"]
    return {"metadata": _meta(event), "uid": about.get("uid", ""), "message": event.get("message", "")}


def _meta(thing: Mapping[str, Any]) -> dict[str, Any]:
    fields = ("name", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "annotations")
    meta = thing["metadata"]
    return {name: meta[name] for name in fields if name in meta}
