"""Jobs and pods as the API server writes them, for the tables."""

from typing import Any

from qinglan.jobs.cluster.snapshot import JobSnapshot, known_pod

CREATED = "2026-01-01T00:00:00Z"
MADE_AT = 1767225600.0
HOURS = 2


def job(uid: str = "u1", nodes: int = 1, **status: Any) -> dict[str, Any]:
    workers = {"Worker": {"replicas": nodes - 1}} if nodes > 1 else {}
    return {
        "metadata": {"name": "sft-0a", "namespace": "n", "uid": uid, "creationTimestamp": CREATED},
        "spec": {
            "runPolicy": {"activeDeadlineSeconds": HOURS * 3600},
            "pytorchReplicaSpecs": {"Master": {"replicas": 1}, **workers},
        },
        "status": status,
    }


def status_is(kind: str, message: str = "") -> list[dict[str, str]]:
    return [{"type": "Created", "status": "True"}, {"type": kind, "status": "True", "message": message}]


def pod(kind: str = "master", phase: str = "Running", owner: str = "u1", **status: Any) -> dict[str, Any]:
    name = f"sft-0a-{kind}-0"
    meta = {"name": name, "uid": f"{owner}-{kind}", "creationTimestamp": CREATED, "ownerReferences": [{"uid": owner}]}
    return {"metadata": meta, "status": {"phase": phase, **status}}


def ended(code: int, reason: str = "Error", at: str = "2026-01-01T01:00:00Z", **more: Any) -> list[dict[str, Any]]:
    return [
        {"name": "pytorch", "state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at, **more}}}
    ]


def unschedulable(message: str) -> list[dict[str, str]]:
    return [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]


def event(message: str, uid: str = "u1") -> dict[str, Any]:
    return {"metadata": {"name": "e"}, "involvedObject": {"uid": uid, "name": "sft-0a"}, "message": message}


def watch(job: dict[str, Any], *pods: dict[str, Any], refused: dict[str, Any] | None = None) -> JobSnapshot:
    slim = {item["metadata"]["name"]: {**known_pod(item, None), "gone": item.get("gone")} for item in pods}
    return JobSnapshot(job, slim, refused or None)
