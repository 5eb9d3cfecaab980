"""The meaning of a job's state, with every gap that the operator leaves, by table."""

from typing import Any

import pytest

from qinglan.jobs.cluster.job_status import POD_GONE_SECONDS, TIMEOUT_EXIT_CODE, Phase, job_status
from qinglan.jobs.cluster.snapshot import JobSnapshot, known_pod
from tests.qinglan.jobs.cluster.job_objects import (
    HOURS,
    MADE_AT,
    ended,
    event,
    job,
    pod,
    status_is,
    unschedulable,
    watch,
)

SOON = MADE_AT + 60
QUOTA = (
    'Error creating: pods "sft-0a-worker-0" is forbidden: exceeded quota: gpus, requested: '
    "requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=8, limited: requests.nvidia.com/gpu=8"
)
SECURITY = (
    'Error creating: pods "sft-0a-worker-0" is forbidden: violates PodSecurity "restricted:latest": '
    'allowPrivilegeEscalation != false (container "init-pytorch" must set it)'
)
DRAINED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "bye"}
PREEMPTED = {**DRAINED, "reason": "PreemptionByScheduler", "message": "to make room"}
FAILED = status_is("Failed", "PyTorchJob sft-0a is failed because 1 Worker replica(s) failed.")
ON_ITS_WAY_OUT = {**job(), "metadata": {**job()["metadata"], "deletionTimestamp": "x"}}
COUNTED = {"Master": {"succeeded": 1}, "Worker": {"succeeded": 1}}


def away(item: dict[str, Any], at: float = SOON - POD_GONE_SECONDS - 1) -> dict[str, Any]:
    return {**item, "gone": at}


@pytest.mark.parametrize(
    ("what", "state", "phase", "code", "words"),
    [
        ("new", watch(job()), "waiting", 0, "its pods are being made"),
        ("runs", watch(job(), pod()), "running", 0, "1 of 1 pods run"),
        ("done", watch(job(conditions=status_is("Succeeded")), pod(phase="Succeeded")), "succeeded", 0, "done"),
        (
            "a condition that held before counts no more",
            watch(job(conditions=[{"type": "Failed", "status": "False"}]), pod()), "running", 0, "1 of 1",
        ),
        (
            "no such node", watch(job(), pod(phase="Pending", conditions=unschedulable("0/4 nodes are available"))),
            "waiting", 0, "sft-0a-master-0: 0/4 nodes are available",
        ),
        (
            "one of two has no place", watch(job(nodes=2), pod(), pod("worker", "Pending")),
            "waiting", 0, "1 of 2 pods run and hold their GPUs",
        ),
        (
            "no image",
            watch(job(), pod(phase="Pending", containerStatuses=[
                {"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}])),
            "waiting", 0, "ErrImagePull: not found",
        ),
        (
            "a code of its own", watch(job(conditions=FAILED), pod(phase="Failed", containerStatuses=ended(3))),
            "failed", 3, "pod sft-0a-master-0 ended with code 3 (it failed). See its log.",
        ),
        (
            "no memory left",
            watch(job(conditions=FAILED), pod(phase="Failed", containerStatuses=ended(137, "OOMKilled"))),
            "failed", 137, "OOMKilled). Raise the step's memory",
        ),
        (
            "the first to die is to blame",
            watch(job(nodes=2, conditions=FAILED),
                 pod(phase="Failed", containerStatuses=ended(1, at="2026-01-01T01:00:09Z")),
                 pod("worker", "Failed", containerStatuses=ended(7, at="2026-01-01T01:00:01Z"))),
            "failed", 7, "pod sft-0a-worker-0 ended with code 7",
        ),
        (
            "preempted", watch(job(conditions=FAILED), away(pod(conditions=[PREEMPTED]))),
            "failed", 143, "PreemptionByScheduler: to make room). A job of a higher priority",
        ),
        (
            "drained, and the operator has not seen it",
            watch(job(nodes=2), pod(), away(pod("worker", conditions=[DRAINED]))),
            "hopeless", 143, "pod sft-0a-worker-0 ended with code 143 (EvictionByEvictionAPI",
        ),
        (
            "a pod that is gone this moment may be news of a success to come",
            watch(job(nodes=2), pod(), away(pod("worker", conditions=[DRAINED]), SOON - 1)), "waiting", 0, "1 of 2",
        ),
        (
            "a worker that never ran", watch(job(nodes=2, conditions=status_is("Succeeded"),
                                               replicaStatuses={"Master": {"succeeded": 1}, "Worker": {}}),
                                           pod(phase="Succeeded")),
            "failed", 1, "1 of 1 workers never ran",
        ),
        (
            "its reason is known though it is cleaned away",
            watch(job(nodes=2, conditions=status_is("Succeeded"), replicaStatuses={"Master": {"succeeded": 1}}),
                 pod(phase="Succeeded"), away(pod("worker", "Pending", conditions=unschedulable("no room")))),
            "failed", 1, "sft-0a-worker-0: no room",
        ),
        (
            "a worker that ran, by the job's count, whose pod is cleaned away",
            watch(job(nodes=2, conditions=status_is("Succeeded"), replicaStatuses=COUNTED), pod(phase="Succeeded")),
            "succeeded", 0, "done",
        ),
        (
            "a worker that ran, by what was seen",
            watch(job(nodes=2, conditions=status_is("Succeeded")), pod(phase="Succeeded"), away(pod("worker"))),
            "succeeded", 0, "done",
        ),
        (
            "over quota, with nothing said", watch(job(nodes=2), pod(), refused=event(QUOTA)),
            "hopeless", 1, "exceeded quota: gpus, requested: requests.nvidia.com/gpu=8",
        ),
        (
            "over quota says what was held", watch(job(nodes=2), pod(), refused=event(QUOTA)),
            "hopeless", 1, "the 1 that it has held their GPUs for nothing",
        ),
        (
            "refused by Pod Security", watch(job(nodes=2), pod(), refused=event(SECURITY)),
            "hopeless", 1, "--pytorch-init-container-template-file",
        ),
        (
            "refused once, and made since", watch(job(nodes=2), pod(), pod("worker"), refused=event(QUOTA)),
            "running", 0, "2 of 2",
        ),
        (
            "the refusal of an earlier job of this name", watch(job("u2"), refused=event(QUOTA, "u1")),
            "waiting", 0, "being made",
        ),
        (
            "a passing error", watch(job(), refused=event("Error creating: etcdserver: request timed out")),
            "waiting", 0, "being made",
        ),
        ("the pods of an earlier job", watch(job("u2"), pod(owner="u1")), "waiting", 0, "being made"),
        (
            "too long, by the operator",
            watch(job(conditions=status_is("Failed", "was active longer than specified deadline")), away(pod())),
            "failed", TIMEOUT_EXIT_CODE, "longer than its 2 hours",
        ),
        (
            "deleted by hand while it runs", watch(ON_ITS_WAY_OUT),
            "waiting", 0, "being deleted",
        ),
    ],
)  # fmt: skip
def test_a_state_has_a_meaning(what: str, state: JobSnapshot, phase: Phase, code: int, words: str) -> None:
    result = job_status(state, SOON)

    assert (result.phase, result.code) == (phase, code), result
    assert words in result.text


@pytest.mark.parametrize(("late", "phase"), [(-1.0, "running"), (1.0, "hopeless")])
def test_the_deadline_is_kept_here_since_the_operator_has_no_timer(late: float, phase: Phase) -> None:
    result = job_status(watch(job(), pod()), MADE_AT + HOURS * 3600 + late)

    assert result.phase == phase
    assert result.code == (TIMEOUT_EXIT_CODE if late > 0 else 0)


def test_a_deleted_pod_is_named_by_when_its_deletion_was_asked_for() -> None:
    """The operator deletes the others afterwards, with the same period of grace."""
    first, later = away(pod("worker")), away(pod())
    first["metadata"] |= {"deletionTimestamp": "2026-01-01T01:00:30Z", "deletionGracePeriodSeconds": 30}
    later["metadata"] |= {"deletionTimestamp": "2026-01-01T01:00:35Z", "deletionGracePeriodSeconds": 30}

    result = job_status(watch(job(nodes=2, conditions=FAILED), first, later), SOON)

    assert result.culprit is not None
    assert result.culprit.pod == "sft-0a-worker-0"
    assert "Somebody deleted it" in result.text


def test_a_pod_that_is_made_anew_when_its_job_has_failed_hides_no_ending() -> None:
    """The operator deletes the pod that failed, makes another of its name, and deletes that too."""
    first = known_pod(pod(containerStatuses=ended(3)), None)
    another = pod(containerStatuses=[{"state": {"running": {}}}])
    another["metadata"] |= {"uid": "new", "deletionTimestamp": "2026-01-01T02:00:00Z"}

    result = job_status(JobSnapshot(job(conditions=FAILED), {"sft-0a-master-0": known_pod(another, first)}), SOON)

    assert (result.phase, result.code) == ("failed", 3)
    assert result.text.startswith("pod sft-0a-master-0 ended with code 3")


def test_a_worker_that_is_made_anew_ends_the_job_also_where_the_operator_has_forgotten_its_failure() -> None:
    """Its note of the failure met another write, and was refused: by its status the job runs on, with a stranger."""
    drained = pod("worker", conditions=[DRAINED])
    anew = {**pod("worker"), "metadata": {**pod("worker")["metadata"], "uid": "another"}}
    state = watch(job(nodes=2, conditions=status_is("Running")), pod())
    pods = {**state.pods, "sft-0a-worker-0": known_pod(anew, known_pod(drained, None))}

    at_once, later = (
        job_status(state._replace(pods=pods), MADE_AT + seconds) for seconds in (0, POD_GONE_SECONDS + 1)
    )

    assert (at_once.phase, later.phase) == ("running", "hopeless")
    assert later.text.startswith("pod sft-0a-worker-0 ") and "Its node was drained" in later.text
