"""How a pod ended, and what to do about it: pure functions over its status."""

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


class PodFailure(NamedTuple):
    pod: str
    code: int
    reason: str
    at: str
    """When, as the server wrote it: the first to die is the one to blame."""

    words: str = ""

    def explained(self) -> str:
        how = self.reason if self.reason not in ("", "Error") else "it failed"
        said = f": {self.words}" if self.words else ""
        step = FAILURE_REMEDIES.get(self.reason) or (
            f"It was killed, most often for its memory. {RESUMES}" if self.code == KILLED else "See its log."
        )
        return f"pod {self.pod} ended with code {self.code} ({how}{said}). {step}"


def first_pod_failure(pods: Iterable[Mapping[str, Any]]) -> PodFailure | None:
    """Of the pods that failed, the one that did so first: the others die of the loss."""
    return min(filter(None, map(pod_failure, pods)), key=lambda one: (one.at or "~", one.pod), default=None)


def first_deleted_pod(pods: Iterable[Mapping[str, Any]]) -> PodFailure | None:
    """For when no pod says why it ended: the first that somebody took away while it ran."""
    ended = [
        PodFailure(pod["metadata"]["name"], KILLED, "Deleted", _deletion_requested_at(pod["metadata"]))
        for pod in pods
        if pod["ran"] and pod["metadata"].get("deletionTimestamp") and pod["status"].get("phase") != "Succeeded"
    ]
    return min(ended, key=lambda one: (one.at, one.pod), default=None)


def _deletion_requested_at(meta: Mapping[str, Any]) -> str:
    """When its deletion was asked for: the server writes when it has to be done."""
    done = datetime.fromisoformat(meta["deletionTimestamp"])
    return (done - timedelta(seconds=meta.get("deletionGracePeriodSeconds", 0))).isoformat()


def pod_failure(pod: Mapping[str, Any]) -> PodFailure | None:
    """How a pod failed; None when it did not."""
    name, status = pod["metadata"]["name"], pod["status"]
    for one in (pod_disruption(status), _container(status), _pod_level_failure(status)):
        if one is not None:
            return one._replace(pod=name)
    return None


def pod_disruption(status: Mapping[str, Any]) -> PodFailure | None:
    """Taken away by the cluster: preempted, drained, lost with its node."""
    for one in status.get("conditions", ()):
        if one["type"] == "DisruptionTarget" and one["status"] == "True":
            return PodFailure(
                "", 143, one.get("reason", ""), one.get("lastTransitionTime", ""), one.get("message", "")
            )
    return None


def _container(status: Mapping[str, Any]) -> PodFailure | None:
    both = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    for one in both:
        for state in (one.get("state", {}), one.get("lastState", {})):
            end = state.get("terminated")
            if end and end.get("exitCode"):
                return PodFailure("", end["exitCode"], end.get("reason", ""), end.get("finishedAt", ""), _short(end))
    return None


def _short(end: Mapping[str, Any]) -> str:
    return str(end.get("message", "")).strip()[:300]


def _pod_level_failure(status: Mapping[str, Any]) -> PodFailure | None:
    """Failed without any container that says so: evicted, or refused by its node."""
    if status.get("phase") != "Failed":
        return None
    return PodFailure("", 1, status.get("reason", ""), "", str(status.get("message", "")).strip()[:300])


def restart_count(pods: Iterable[Mapping[str, Any]]) -> int:
    """How often containers were started anew."""
    statuses = (one for pod in pods for one in pod["status"].get("containerStatuses", ()))
    return sum(one.get("restartCount", 0) for one in statuses)
