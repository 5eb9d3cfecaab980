"""What a job's state means for the step that follows it: a pure function over what was seen, by table in the tests.

The operator (training-operator 1.8) leaves gaps that are read here: nobody keeps its deadline, a pod that the quota
refuses leaves no condition, and a Master that ends well ends the job whether or not its workers ever ran.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from qinglan.jobs.endings import Ending, first_deleted, first_ending, restarts
from qinglan.jobs.seen import Seen
from qinglan.jobs.waiting import waits_for

Phase = Literal["waiting", "running", "succeeded", "failed", "hopeless"]
LATE = 124
"""The exit code of `timeout`."""

LOST_SECONDS = 5.0
"""How long after a pod is gone the job may still be said to run: the news of both come separately."""


class Reading(NamedTuple):
    phase: Phase
    """failed: it is over; hopeless: it is not, and whoever follows it must end it."""

    text: str
    code: int = 0
    culprit: Ending | None = None
    final: bool = False
    """A failure without a culprit, that no later news will give one."""


def read(seen: Seen, now: float) -> Reading:
    """`seen.job` is known by now. `now` is in seconds since the epoch."""
    assert seen.job is not None
    job, pods = seen.job, own_pods(seen)
    if condition(job, "Failed"):
        return _failed(job, pods)
    if condition(job, "Succeeded"):
        return _succeeded(job, pods)
    if job["metadata"].get("deletionTimestamp"):
        return Reading("waiting", "it is being deleted")
    if refused := _refused(seen, pods):
        return refused
    if now - since_epoch(job["metadata"]["creationTimestamp"]) > (limit := deadline(job)):
        return Reading("hopeless", _late(limit, pods), LATE)
    if dead := _dead(job, pods, now):
        return dead
    return _alive(job, pods)


def _failed(job: Mapping[str, Any], pods: list[Mapping[str, Any]]) -> Reading:
    message = condition(job, "Failed") or ""
    if "longer than specified deadline" in message:
        return Reading("failed", _late(deadline(job), pods), LATE, final=True)
    replaced = [{**pod, "status": pod["earlier"]} for pod in pods if pod.get("earlier")]
    for known in (pods, replaced):
        if culprit := first_ending(known):
            often = restarts(known)
            again = f"After {often} restarts " if often else ""
            return Reading("failed", again + culprit.explained(), culprit.code, culprit)
    if culprit := first_deleted(pod for pod in pods if _blamed(pod, message)):
        return Reading("failed", culprit.explained(), culprit.code, culprit)
    return Reading("failed", f"{message} See its events: kubectl describe pytorchjob {job['metadata']['name']}", 1)


def _blamed(pod: Mapping[str, Any], message: str) -> bool:
    """The operator counts `1 Worker replica(s) failed`; the others it deletes itself, afterwards."""
    return ("-worker-" in pod["metadata"]["name"]) == ("Worker replica" in message)


def _succeeded(job: Mapping[str, Any], pods: list[Mapping[str, Any]]) -> Reading:
    wanted, ran = workers(job), workers_ran(job, pods)
    if ran >= wanted:
        return Reading("succeeded", "done")
    return Reading(
        "failed",
        f"its master ended well, but {wanted - ran} of {wanted} workers never ran: what it made is not the training "
        f"that was asked for. {waits_for(_revived(pods)) or 'Look for free GPUs'}. Run it again.",
        1,
        final=True,
    )


def _revived(pods: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The pods that were cleaned away before they ran still know what they waited for."""
    return [{**pod, "gone": None} for pod in pods if not pod["ran"]]


def _refused(seen: Seen, pods: list[Mapping[str, Any]]) -> Reading | None:
    """A pod that may not be made: by the quota, by Pod Security, by a policy. The operator says nothing of it."""
    assert seen.job is not None
    event = seen.refused
    there = sum(not pod["gone"] for pod in pods)
    if event is None or event["uid"] != seen.job["metadata"]["uid"] or there >= nodes(seen.job):
        return None
    said = event["message"].removeprefix("Error creating: ")
    if "is forbidden" not in said and "denied" not in said:
        return None
    if "exceeded quota" in said:
        step = "Wait until others are done, ask for a larger quota, or ask for less in the profile"
    elif "PodSecurity" in said and nodes(seen.job) > 1 and "init-pytorch" in said:
        step = (
            "training-operator's own init container breaks the namespace's Pod Security: start the operator with "
            "--pytorch-init-container-template-file and a securityContext in it"
        )
    else:
        step = "Mend what it names"
    holding = f"; the {there} that it has held their GPUs for nothing and are ended" if there else ""
    return Reading("hopeless", f"a pod was refused: {said}{holding}. {step}, and run again.", 1)


def _late(limit: float, pods: list[Mapping[str, Any]]) -> str:
    if any(pod["ran"] for pod in pods):
        return (
            f"it took longer than its {limit / 3600:g} hours. Give it more in the profile; a retry goes on from the "
            "last checkpoint."
        )
    waited = waits_for(pods) or "its pods did not start"
    return f"its {limit / 3600:g} hours went by before it ran: {waited}. Run it again when there is room."


def _dead(job: Mapping[str, Any], pods: list[Mapping[str, Any]], now: float) -> Reading | None:
    """A pod that was taken away: the operator makes a new one, which the others do not know."""
    if any(one.get("restartPolicy") != "Never" for one in replicas(job).values()):
        return None
    gone = [pod for pod in pods if pod["ran"] and pod["gone"] and now - pod["gone"] > LOST_SECONDS]
    ended = first_ending(gone) or first_deleted(gone)
    return Reading("hopeless", ended.explained(), ended.code, ended) if ended else None


def _alive(job: Mapping[str, Any], pods: list[Mapping[str, Any]]) -> Reading:
    there = [pod for pod in pods if not pod["gone"]]
    if ended := first_ending(pod for pod in there if pod["status"].get("phase") == "Failed"):
        return Reading("running", f"{ended.explained()} The job is about to end")
    running = sum(pod["status"].get("phase") in ("Running", "Succeeded") for pod in there)
    wanted = nodes(job)
    if running == wanted:
        often = restarts(there)
        last = first_ending(there) if often else None
        again = f", restarted {often} times, last: {last.explained()}" if last else ""
        return Reading("running", f"{wanted} of {wanted} pods run{again}")
    held = f"{running} of {wanted} pods run and hold their GPUs" if running else "pending"
    return Reading("waiting", f"{held}: {waits_for(there) or 'its pods are being made'}")


def own_pods(seen: Seen) -> list[Mapping[str, Any]]:
    """Of this very job: another may have had the name before."""
    assert seen.job is not None
    uid = seen.job["metadata"]["uid"]
    mine = [pod for pod in seen.pods.values() if any(one["uid"] == uid for one in pod["metadata"]["ownerReferences"])]
    return sorted(mine, key=lambda pod: str(pod["metadata"]["name"]))


def over(job: Mapping[str, Any]) -> bool:
    return bool(condition(job, "Succeeded") or condition(job, "Failed"))


def condition(job: Mapping[str, Any], kind: str) -> str | None:
    """Its message where it holds."""
    for one in job["status"].get("conditions") or ():
        if one["type"] == kind and one["status"] == "True":
            return str(one.get("message", "")) or kind
    return None


def replicas(job: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = job["spec"]["pytorchReplicaSpecs"]
    return found


def nodes(job: Mapping[str, Any]) -> int:
    return sum(one["replicas"] for one in replicas(job).values())


def workers(job: Mapping[str, Any]) -> int:
    return int(replicas(job).get("Worker", {}).get("replicas", 0))


def workers_ran(job: Mapping[str, Any], pods: list[Mapping[str, Any]]) -> int:
    """By the job's own count, which stays when its pods are cleaned away, or by what was seen of them."""
    counted: Mapping[str, int] = (job["status"].get("replicaStatuses") or {}).get("Worker") or {}
    by_count = sum(counted.get(name, 0) for name in ("active", "succeeded", "failed"))
    by_sight = sum(1 for pod in pods if pod["ran"] and "-worker-" in pod["metadata"]["name"])
    return max(by_count, by_sight)


def deadline(job: Mapping[str, Any]) -> float:
    return float(job["spec"]["runPolicy"].get("activeDeadlineSeconds") or float("inf"))


def since_epoch(written: str) -> float:
    return datetime.fromisoformat(written).timestamp()
