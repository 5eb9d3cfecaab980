"""Compute the status of a job, for the step that follows it, from a snapshot by pure functions.

The functions work around gaps of training-operator 1.8 (https://github.com/kubeflow/trainer/tree/release-1.8). The
operator does not enforce the deadline, sets no condition if a quota refuses a pod, and reports success if the Master
succeeds although its workers never ran.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from qinglan.jobs.cluster.pod_status import PodFailure, first_deleted_pod, first_pod_failure, pending_reason
from qinglan.jobs.cluster.snapshot import JobSnapshot

Phase = Literal["waiting", "running", "succeeded", "failed", "hopeless"]
TIMEOUT_EXIT_CODE = 124
"""Exit code of a job that exceeded its deadline, the same as that of the `timeout` command."""

POD_GONE_SECONDS = 5.0
"""Seconds to wait for the job's status after one of its pods is gone, because job and pod are reported separately."""


class JobStatus(NamedTuple):
    phase: Phase
    """`failed`: the job has ended. `hopeless`: the job exists but cannot succeed, so the follower deletes it."""

    text: str
    code: int = 0
    culprit: PodFailure | None = None
    final: bool = False
    """True if no later event can name the pod that caused the failure (`culprit`)."""


def job_status(snapshot: JobSnapshot, now: float) -> JobStatus:
    """Compute the job's status at `now`, in seconds since the epoch by the API server's clock.

    `snapshot.job` must not be None.
    """
    assert snapshot.job is not None
    job, pods = snapshot.job, pods_of_job(snapshot)
    if condition_message(job, "Failed"):
        return _failed(job, pods)
    if condition_message(job, "Succeeded"):
        return _succeeded(job, pods)
    if job["metadata"].get("deletionTimestamp"):
        return JobStatus("waiting", "it is being deleted")
    if refused := _pod_creation_refused(snapshot, pods):
        return refused
    # training-operator compares the deadline only when something else changes; it has no timer.
    if now - parse_timestamp(job["metadata"]["creationTimestamp"]) > (limit := deadline(job)):
        return JobStatus("hopeless", _deadline_message(limit, pods), TIMEOUT_EXIT_CODE)
    if dead := _lost_pod_status(job, pods, now):
        return dead
    return _active_status(job, pods)


def _failed(job: Mapping[str, Any], pods: list[Mapping[str, Any]]) -> JobStatus:
    message = condition_message(job, "Failed") or ""
    if "longer than specified deadline" in message:
        return JobStatus("failed", _deadline_message(deadline(job), pods), TIMEOUT_EXIT_CODE, final=True)
    for candidates in (pods, _replaced(pods)):
        if culprit := first_pod_failure(candidates):
            return JobStatus("failed", culprit.explained(), culprit.code, culprit)
    # The message counts `1 Worker replica(s) failed`; pods of the other role are deleted by the operator afterwards.
    failed_role = "Worker replica" in message
    candidates = [pod for pod in pods if ("-worker-" in pod["metadata"]["name"]) == failed_role]
    if culprit := first_deleted_pod(candidates):
        return JobStatus("failed", culprit.explained(), culprit.code, culprit)
    return JobStatus("failed", f"{message} See its events: kubectl describe pytorchjob {job['metadata']['name']}", 1)


def _replaced(pods: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the pods that replaced a failed pod, each with the status of the failed pod."""
    return [{**pod, "status": pod["earlier"]} for pod in pods if pod.get("earlier")]


def _succeeded(job: Mapping[str, Any], pods: list[Mapping[str, Any]]) -> JobStatus:
    expected = int(job["spec"]["pytorchReplicaSpecs"].get("Worker", {}).get("replicas", 0))
    # Number of workers that have started: the larger of the job's own count, which outlives its pods, and the count
    # of pods in the snapshot.
    counted: Mapping[str, int] = ((job.get("status") or {}).get("replicaStatuses") or {}).get("Worker") or {}
    ran = max(
        sum(counted.get(name, 0) for name in ("active", "succeeded", "failed")),
        sum(1 for pod in pods if pod["ran"] and "-worker-" in pod["metadata"]["name"]),
    )
    if ran >= expected:
        return JobStatus("succeeded", "done")
    # Pods that were removed before they ran still show why they waited.
    waiting = [{**pod, "gone": None} for pod in pods if not pod["ran"]]
    reason = pending_reason(waiting) or "Look for free GPUs"
    text = (
        f"its master ended well, but {expected - ran} of {expected} workers never ran: what it made is not the "
        f"training that was asked for. {reason}. Run it again."
    )
    return JobStatus("failed", text, 1, final=True)


def _pod_creation_refused(snapshot: JobSnapshot, pods: list[Mapping[str, Any]]) -> JobStatus | None:
    """Return the status `hopeless` if a quota, Pod Security or a policy refused one of the job's pods; else None.

    The operator does not report such a refusal.
    """
    assert snapshot.job is not None
    event = snapshot.refused
    count = sum(not pod["gone"] for pod in pods)
    if (
        event is None
        or event["involvedObject"].get("uid") != snapshot.job["metadata"]["uid"]
        or count >= node_count(snapshot.job)
    ):
        return None
    message = event.get("message", "").removeprefix("Error creating: ")
    if "is forbidden" not in message and "denied" not in message:
        return None
    if "exceeded quota" in message:
        step = "Wait until others are done, ask for a larger quota, or ask for less in the profile"
    elif "PodSecurity" in message and node_count(snapshot.job) > 1 and "init-pytorch" in message:
        step = (
            "training-operator's own init container breaks the namespace's Pod Security: start the operator with "
            "--pytorch-init-container-template-file and a securityContext in it"
        )
    else:
        step = "Mend what it names"
    holding = f"; the {count} that it has held their GPUs for nothing and are ended" if count else ""
    return JobStatus("hopeless", f"a pod was refused: {message}{holding}. {step}, and run again.", 1)


def _deadline_message(limit: float, pods: list[Mapping[str, Any]]) -> str:
    if any(pod["ran"] for pod in pods):
        return (
            f"it took longer than its {limit / 3600:g} hours. Give it more in the profile; a retry goes on from the "
            "last checkpoint."
        )
    waited = pending_reason(pods) or "its pods did not start"
    return f"its {limit / 3600:g} hours went by before it ran: {waited}. Run it again when there is room."


def _lost_pod_status(job: Mapping[str, Any], pods: list[Mapping[str, Any]], now: float) -> JobStatus | None:
    """Return the status `hopeless` if the job lost a pod; else None.

    The pod that the operator creates instead cannot join the training. The operator also marks the job as failed, but
    it does not repeat this write after a conflict (HTTP 409).
    """
    deleted = [pod for pod in pods if pod["ran"] and pod["gone"] and now - pod["gone"] > POD_GONE_SECONDS]
    replaced = [
        pod
        for pod in _replaced(pods)
        if now - parse_timestamp(pod["metadata"]["creationTimestamp"]) > POD_GONE_SECONDS
    ]
    ended = first_pod_failure([*deleted, *replaced]) or first_deleted_pod(deleted)
    return JobStatus("hopeless", ended.explained(), ended.code, ended) if ended else None


def _active_status(job: Mapping[str, Any], pods: list[Mapping[str, Any]]) -> JobStatus:
    present = [pod for pod in pods if not pod["gone"]]
    if ended := first_pod_failure(pod for pod in present if pod["status"].get("phase") == "Failed"):
        return JobStatus("running", f"{ended.explained()} The job is about to end")
    running = sum(pod["status"].get("phase") in ("Running", "Succeeded") for pod in present)
    expected = node_count(job)
    if running == expected:
        return JobStatus("running", f"{expected} of {expected} pods run")
    held = f"{running} of {expected} pods run and hold their GPUs" if running else "pending"
    return JobStatus("waiting", f"{held}: {pending_reason(present) or 'its pods are being made'}")


def pods_of_job(snapshot: JobSnapshot) -> list[Mapping[str, Any]]:
    """Return the job's pods, sorted by name, without pods of an earlier job with the same name."""
    assert snapshot.job is not None
    uid = snapshot.job["metadata"]["uid"]
    pods = [
        pod
        for pod in snapshot.pods.values()
        if uid in {item["uid"] for item in pod["metadata"].get("ownerReferences", ())}
    ]
    return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))


def is_finished(job: Mapping[str, Any]) -> bool:
    return bool(condition_message(job, "Succeeded") or condition_message(job, "Failed"))


def condition_message(job: Mapping[str, Any], kind: str) -> str | None:
    """Return the message of the job's condition `kind`, such as `Failed`; None if the condition is not true."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] == kind and condition["status"] == "True":
            return str(condition.get("message", "")) or kind
    return None


def node_count(job: Mapping[str, Any]) -> int:
    return sum(replica.get("replicas", 1) for replica in job["spec"]["pytorchReplicaSpecs"].values())


def deadline(job: Mapping[str, Any]) -> float:
    return float(job["spec"].get("runPolicy", {}).get("activeDeadlineSeconds") or float("inf"))


def parse_timestamp(written: str) -> float:
    return datetime.fromisoformat(written).timestamp()
