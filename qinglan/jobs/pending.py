"""What a job that does not run yet waits for, in the cluster's own words: pure functions over its pods."""

from collections.abc import Iterable, Mapping
from typing import Any

PENDING_REMEDIES = (
    ("node affinity/selector", "No node is such as the job selects. Ask for A100 nodes, or change the profile's node "
     "selector"),
    ("Insufficient nvidia.com/gpu", "All GPUs are taken, or no node has as many. Wait, end other jobs, or ask "
     "for fewer in the profile"),
    ("Insufficient", "No node has that much left. Lower what the profile asks for, or wait"),
    ("untolerated taint", "Give the profile the toleration"),
    ("persistentvolumeclaim", "Create the volume claim it names"),
    ("secret", "Create the Secret it names"),
    ("Image", "Check the image's name and digest, and the Secret to pull it with"),
    ("runAsNonRoot", "The image runs as root: set its user to a number above 0"),
)  # fmt: skip


def pending_reason(pods: Iterable[Mapping[str, Any]]) -> str:
    """The first reason that any pod gives; empty where none gives one."""
    for pod in pods:
        if pod["gone"] or pod["status"].get("phase", "Pending") != "Pending":
            continue
        said = _scheduler(pod["status"]) or _container(pod["status"])
        if said:
            return f"{pod['metadata']['name']}: {said}"
    return ""


def _scheduler(status: Mapping[str, Any]) -> str:
    for one in status.get("conditions", ()):
        if one["type"] == "PodScheduled" and one["status"] == "False":
            return str(one.get("message") or one.get("reason", ""))
    return ""


def _container(status: Mapping[str, Any]) -> str:
    for one in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        waiting = one.get("state", {}).get("waiting")
        if waiting and waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return ""


def pending_remedy(said: str) -> str:
    """What a person does about it."""
    return next((step for part, step in PENDING_REMEDIES if part in said), "Look at it with: kubectl describe pod")
