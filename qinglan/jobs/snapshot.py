"""What is known of a job, its pods and what its pods were refused with: plain data, folded from what a watch says."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from qinglan.jobs.pod_failures import pod_failure

JOB_NAME_LABEL = "training.kubeflow.org/job-name"


class JobSnapshot(NamedTuple):
    """One job, as last heard of."""

    job: Mapping[str, Any] | None = None
    pods: Mapping[str, Mapping[str, Any]] = {}
    """By name; one that was deleted stays, with when it was gone: how it ended is asked for afterwards."""

    refused: Mapping[str, Any] | None = None
    """The last event of a pod that could not be created."""


def slim_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """As much of a job as is read here."""
    return {"metadata": _meta(job), "spec": _slim_spec(job["spec"]), "status": job.get("status") or {}}


def _slim_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    replicas = spec.get("pytorchReplicaSpecs", {})
    return {
        "runPolicy": spec.get("runPolicy", {}),
        "pytorchReplicaSpecs": {
            kind: {"replicas": one.get("replicas", 1), "restartPolicy": one.get("restartPolicy", "Never")}
            for kind, one in replicas.items()
        },
    }


def slim_pod(pod: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """A pod with three things the server forgets: whether it ever ran, when it was gone, and how the pod of this
    name ended that it replaces: an operator that has just ended a job may make one more before it knows."""
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
    """The status of the one that it replaces, in the same job."""
    if before["metadata"].get("ownerReferences") != pod["metadata"].get("ownerReferences", []):
        return {}
    replaces = before["metadata"]["uid"] != pod["metadata"]["uid"]
    status: Mapping[str, Any] = before["status"] if replaces and pod_failure(before) else before["earlier"]
    return status


def _ended(status: Mapping[str, Any]) -> bool:
    return any("terminated" in one.get("state", {}) for one in status.get("containerStatuses", ()))


def slim_event(event: Mapping[str, Any]) -> dict[str, Any]:
    about = event["involvedObject"]
    return {"metadata": _meta(event), "uid": about.get("uid", ""), "message": event.get("message", "")}


def _meta(thing: Mapping[str, Any]) -> dict[str, Any]:
    wanted = ("name", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "annotations")
    meta = thing["metadata"]
    return {name: meta[name] for name in wanted if name in meta}
