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
    """Newest event about a pod that the operator could not create."""


def known_pod(pod: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Copy a pod, and add the fields `ran`, `gone` and `earlier`, which the API server does not store.

    `ran`: True if the pod has run. `gone`: time of the pod's deletion, always None in the new copy. `earlier`: status
    of the failed pod that this pod replaced; the operator may replace a failed pod before it knows that the job has
    ended. `before` is the last known pod with the same name.
    """
    meta, status = pod["metadata"], pod.get("status") or {}
    same = before is not None and before["metadata"]["uid"] == meta["uid"]
    ended = any("terminated" in container.get("state", {}) for container in status.get("containerStatuses", ()))
    earlier: Mapping[str, Any] = {}
    if before is not None and before["metadata"].get("ownerReferences") == meta.get("ownerReferences"):
        earlier = before["status"] if not same and pod_failure(before) else before["earlier"]
    return {
        "metadata": meta,
        "status": status,
        "ran": status.get("phase") in ("Running", "Succeeded") or ended or bool(same and before and before["ran"]),
        "gone": None,
        "earlier": earlier,
    }
