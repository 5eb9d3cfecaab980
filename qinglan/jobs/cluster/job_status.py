"""The status of a job for the step that follows it: a pure function over a snapshot, by table in the tests.

The operator (training-operator 1.8) leaves gaps that are read here: nobody keeps its deadline, a pod that the quota
refuses leaves no condition, and a Master that ends well ends the job whether or not its workers ever ran.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from qinglan.jobs.cluster.pod_status import PodFailure, first_deleted_pod, first_pod_failure, pending_reason
from qinglan.jobs.cluster.snapshot import JobSnapshot

Phase = Literal["waiting", "running", "succeeded", "failed", "hopeless"]
TIMEOUT_EXIT_CODE = 124
"""The exit code of `timeout`."""

POD_GONE_SECONDS = 5.0
"""Seconds for which a job may still seem to run after a pod of it is gone: the two are reported separately."""


class JobStatus(NamedTuple):
    phase: Phase
    """failed: the job is over; hopeless: it still exists and cannot succeed, so its follower must end it."""

    text: str
    code: int = 0
    culprit: PodFailure | None = None
    final: bool = False
    """A failure without a culprit, that no later news will give one."""


def job_status(snapshot: JobSnapshot, now: float) -> JobStatus:
    """`snapshot.job` is known by now. `now` is in seconds since the epoch, by the API server's clock."""
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
    if culprit := first_deleted_pod(pod for pod in pods if _is_in_failed_role(pod, message)):
        return JobStatus("failed", culprit.explained(), culprit.code, culprit)
    return JobStatus("failed", f"{message} See its events: kubectl describe pytorchjob {job['metadata']['name']}", 1)


def _replaced(pods: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The pods that stand in another's place, with the status in which that one failed."""
    return [{**pod, "status": pod["earlier"]} for pod in pods if pod.get("earlier")]


def _is_in_failed_role(pod: Mapping[str, Any], message: str) -> bool:
    """The operator counts `1 Worker replica(s) failed`; the others it deletes itself, afterwards."""
    return ("-worker-" in pod["metadata"]["name"]) == ("Worker replica" in message)


def _succeeded(job: Mapping[str, Any], pods: list[Mapping[str, Any]]) -> JobStatus:
    expected, ran = worker_count(job), started_worker_count(job, pods)
    if ran >= expected:
        return JobStatus("succeeded", "done")
    reason = pending_reason(_pods_never_started(pods)) or "Look for free GPUs"
    text = (
        f"its master ended well, but {expected - ran} of {expected} workers never ran: what it made is not the "
        f"training that was asked for. {reason}. Run it again."
    )
    return JobStatus("failed", text, 1, final=True)


def _pods_never_started(pods: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The pods that were cleaned away before they ran still know what they waited for."""
    return [{**pod, "gone": None} for pod in pods if not pod["ran"]]


def _pod_creation_refused(snapshot: JobSnapshot, pods: list[Mapping[str, Any]]) -> JobStatus | None:
    """A pod that may not be made: by the quota, by Pod Security, by a policy. The operator says nothing of it."""
    assert snapshot.job is not None
    event = snapshot.refused
    count = sum(not pod["gone"] for pod in pods)
    if event is None or event["uid"] != snapshot.job["metadata"]["uid"] or count >= node_count(snapshot.job):
        return None
    message = event["message"].removeprefix("Error creating: ")
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
    """A pod that was taken away: the operator makes a new one, which the others do not know.

    It notes that the job failed, too; where that note meets another write it is refused, and forgotten.
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
    """The pods of this very job: another may have had the name before."""
    assert snapshot.job is not None
    uid = snapshot.job["metadata"]["uid"]
    pods = [
        pod for pod in snapshot.pods.values() if uid in {item["uid"] for item in pod["metadata"]["ownerReferences"]}
    ]
    return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))


def is_finished(job: Mapping[str, Any]) -> bool:
    return bool(condition_message(job, "Succeeded") or condition_message(job, "Failed"))


def condition_message(job: Mapping[str, Any], kind: str) -> str | None:
    """Its message where it holds."""
    for condition in job["status"].get("conditions") or ():
        if condition["type"] == kind and condition["status"] == "True":
            return str(condition.get("message", "")) or kind
    return None


def replica_specs(job: Mapping[str, Any]) -> Mapping[str, Any]:
    specs: Mapping[str, Any] = job["spec"]["pytorchReplicaSpecs"]
    return specs


def node_count(job: Mapping[str, Any]) -> int:
    return sum(replica["replicas"] for replica in replica_specs(job).values())


def worker_count(job: Mapping[str, Any]) -> int:
    return int(replica_specs(job).get("Worker", {}).get("replicas", 0))


def started_worker_count(job: Mapping[str, Any], pods: list[Mapping[str, Any]]) -> int:
    """Workers that have started: by the job's own count, which outlives its pods, or by the pods in the snapshot."""
    counted: Mapping[str, int] = (job["status"].get("replicaStatuses") or {}).get("Worker") or {}
    by_count = sum(counted.get(name, 0) for name in ("active", "succeeded", "failed"))
    by_sight = sum(1 for pod in pods if pod["ran"] and "-worker-" in pod["metadata"]["name"])
    return max(by_count, by_sight)


def deadline(job: Mapping[str, Any]) -> float:
    return float(job["spec"]["runPolicy"].get("activeDeadlineSeconds") or float("inf"))


def parse_timestamp(written: str) -> float:
    return datetime.fromisoformat(written).timestamp()
