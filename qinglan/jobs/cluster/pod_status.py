"""Explain why a pod failed or is pending, with the next step, by pure functions over its status."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

RESUMES = "A retry goes on from the last checkpoint."
KILLED = 137
FAILURE_REMEDIES = {
    "OOMKilled": f"Raise the step's memory in the profile, or lower the batch. {RESUMES}",
    "Evicted": f"Its node ran short of something. Raise what the step requests in the profile. {RESUMES}",
    "PreemptionByScheduler": f"A job of a higher priority took its place. {RESUMES}",
    "EvictionByEvictionAPI": f"Its node was drained. {RESUMES}",
    "DeletionByTaintManager": f"Its node left the cluster or was tainted. {RESUMES}",
    "Deleted": f"Somebody deleted it, or its node was drained. {RESUMES}",
    "DeletionByPodGC": f"Its node is gone. {RESUMES}",
}
PENDING_REMEDIES = (
    ("node affinity/selector", "No node has all labels that the job selects. Label the GPU nodes, or change "
     "cluster.gpu_nodes in the profile"),
    ("Insufficient nvidia.com/gpu", "All GPUs are taken, or no node has as many. Wait, end other jobs, or ask "
     "for fewer in the profile"),
    ("Insufficient", "No node has that much left. Lower what the profile asks for, or wait"),
    ("untolerated taint", "Give the profile the toleration"),
    ("persistentvolumeclaim", "Create the volume claim it names"),
    ("secret", "Create the Secret it names"),
    ("Image", "Check the image's name and digest, and the Secret to pull it with"),
    ("runAsNonRoot", "The image runs as root: set its user to a number above 0"),
)  # fmt: skip


class PodFailure(NamedTuple):
    pod: str
    code: int
    reason: str
    at: str
    """Time of the failure as the API server wrote it. The pod with the earliest failure is the cause."""

    words: str = ""

    def explained(self) -> str:
        how = self.reason if self.reason not in ("", "Error") else "it failed"
        words = f": {self.words}" if self.words else ""
        step = FAILURE_REMEDIES.get(self.reason) or (
            f"It was killed, most often for its memory. {RESUMES}" if self.code == KILLED else "See its log."
        )
        return f"pod {self.pod} ended with code {self.code} ({how}{words}). {step}"


def first_pod_failure(pods: Iterable[Mapping[str, Any]]) -> PodFailure | None:
    """Return the failure of the pod that failed first, which makes the other pods fail; None if no pod failed."""
    failures = filter(None, map(pod_failure, pods))
    return min(failures, key=lambda failure: (failure.at or "~", failure.pod), default=None)


def first_deleted_pod(pods: Iterable[Mapping[str, Any]]) -> PodFailure | None:
    """Return the failure of the first pod that was deleted while it ran; None if no pod was deleted.

    Call this function if no pod's status explains the job's failure.
    """
    failures = []
    for pod in pods:
        meta = pod["metadata"]
        if pod["ran"] and meta.get("deletionTimestamp") and pod["status"].get("phase") != "Succeeded":
            # deletionTimestamp is the time at which the deletion must be done, not the time of its request.
            deadline = datetime.fromisoformat(meta["deletionTimestamp"])
            requested = deadline - timedelta(seconds=meta.get("deletionGracePeriodSeconds", 0))
            failures.append(PodFailure(meta["name"], KILLED, "Deleted", requested.isoformat()))
    return min(failures, key=lambda failure: (failure.at, failure.pod), default=None)


def pod_failure(pod: Mapping[str, Any]) -> PodFailure | None:
    """Read a pod's failure from its conditions and containers; None if the pod did not fail."""
    name, status = pod["metadata"]["name"], pod["status"]
    for condition in status.get("conditions", ()):
        # The cluster took the pod away: preempted, drained, lost with its node.
        # https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            reason, message = condition.get("reason", ""), condition.get("message", "")
            return PodFailure(name, 143, reason, condition.get("lastTransitionTime", ""), message)
    for container in _containers(status):
        end = container.get("state", {}).get("terminated")
        if end and end.get("exitCode"):
            message = str(end.get("message", "")).strip()[:300]
            return PodFailure(name, end["exitCode"], end.get("reason", ""), end.get("finishedAt", ""), message)
    if status.get("phase") == "Failed":  # no container reports it: the pod was evicted, or refused by its node
        return PodFailure(name, 1, status.get("reason", ""), "", str(status.get("message", "")).strip()[:300])
    return None


def _containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def pending_reason(pods: Iterable[Mapping[str, Any]]) -> str:
    """Return why the first pending pod waits, in the cluster's own words, with the pod's name.

    Returns "" if no pod is pending or has a reason.
    """
    for pod in pods:
        if pod["gone"] or pod["status"].get("phase", "Pending") != "Pending":
            continue
        if reason := _waiting_reason(pod["status"]):
            return f"{pod['metadata']['name']}: {reason}"
    return ""


def _waiting_reason(status: Mapping[str, Any]) -> str:
    """Return why a pod is pending: the scheduler's reason, else the reason of a waiting container, else ""."""
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason", ""))
    for container in _containers(status):
        waiting = container.get("state", {}).get("waiting")
        if waiting and waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return ""


def pending_remedy(reason: str) -> str:
    """Return what a person can do about the reason for which a pod is pending."""
    return next((step for part, step in PENDING_REMEDIES if part in reason), "Look at it with: kubectl describe pod")
