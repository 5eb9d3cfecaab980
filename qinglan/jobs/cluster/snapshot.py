"""Snapshot of a job, its pods and its refused pods, as plain data from the events of a watch."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from qinglan.jobs.cluster.pod_status import pod_failure

JOB_NAME_LABEL = "training.kubeflow.org/job-name"


class JobSnapshot(NamedTuple):
    """The last known state of a job."""

    job: Mapping[str, Any] | None = None
    pods: Mapping[str, Mapping[str, Any]] = {}
    """Pods by name. A deleted pod stays, with the time of its deletion, because its failure is read later."""

    refused: Mapping[str, Any] | None = None
    """Newest event about a pod that could not be created."""


def slim_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """Copy only the fields of a job that this package reads."""
    replicas = {
        kind: {"replicas": replica.get("replicas", 1)}
        for kind, replica in job["spec"].get("pytorchReplicaSpecs", {}).items()
    }
    spec = {"runPolicy": job["spec"].get("runPolicy", {}), "pytorchReplicaSpecs": replicas}
    return {"metadata": _meta(job), "spec": spec, "status": job.get("status") or {}}


def slim_pod(pod: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Copy the fields of a pod that are read, and add `ran`, `gone` and `earlier`, which the API server forgets.

    `ran`: the pod has run. `gone`: time of its deletion, None here. `earlier`: status of the failed pod that had the
    same name; the operator may create one more pod before it knows that the job has ended.
    """
    same = before is not None and before["metadata"]["uid"] == pod["metadata"]["uid"]
    owners, status = pod["metadata"].get("ownerReferences", []), pod.get("status") or {}
    ended = any("terminated" in container.get("state", {}) for container in status.get("containerStatuses", ()))
    earlier: Mapping[str, Any] = {}
    if before is not None and before["metadata"].get("ownerReferences") == owners:  # of the same job
        earlier = before["status"] if not same and pod_failure(before) else before["earlier"]
    return {
        "metadata": {**_meta(pod), "ownerReferences": owners},
        "status": status,
        "ran": status.get("phase") in ("Running", "Succeeded") or ended or bool(same and before and before["ran"]),
        "gone": None,
        "earlier": earlier,
    }


def slim_event(event: Mapping[str, Any]) -> dict[str, Any]:
    about = event["involvedObject"]
    return {"metadata": _meta(event), "uid": about.get("uid", ""), "message": event.get("message", "")}


def _meta(thing: Mapping[str, Any]) -> dict[str, Any]:
    fields = ("name", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "annotations")
    meta = thing["metadata"]
    return {name: meta[name] for name in fields if name in meta}
