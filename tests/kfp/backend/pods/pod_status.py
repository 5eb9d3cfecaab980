"""The status that a kubelet would report of a pod: pure functions over what became of its containers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

Object = dict[str, Any]


class ContainerState(NamedTuple):
    """A container that waits (no `started`), runs (no `code`) or ended."""

    name: str
    image: str
    started: str = ""
    ended: str = ""
    code: int | None = None
    waiting: str = "PodInitializing"
    message: str = ""


def exit_code(returncode: int) -> int:
    """A process's exit code as a kubelet names it: 128 and the number of the signal that ended it."""
    return returncode if returncode >= 0 else 128 - returncode


def container_status(state: ContainerState, pod: str) -> Object:
    status: Object = {
        "name": state.name, "image": state.image, "imageID": state.image, "restartCount": 0,
        "ready": bool(state.started) and state.code is None,
    }  # fmt: skip
    if not state.started:
        return {**status, "state": {"waiting": {"reason": state.waiting, "message": state.message}}}
    status |= {"started": state.code is None, "containerID": f"process://{pod}/{state.name}"}
    if state.code is None:
        return {**status, "state": {"running": {"startedAt": state.started}}}
    reason = "Completed" if state.code == 0 else "Error"
    ended = {"exitCode": state.code, "reason": reason, "startedAt": state.started, "finishedAt": state.ended}
    return {**status, "state": {"terminated": ended}}


def phase(initial: Sequence[ContainerState], main: Sequence[ContainerState]) -> str:
    if any(state.code for state in initial):
        return "Failed"
    if not main or not all(state.started for state in main):
        return "Pending"
    if any(state.code is None for state in main):
        return "Running"
    return "Failed" if any(state.code for state in main) else "Succeeded"


def pod_status(
    pod: str, began: str, initial: Sequence[ContainerState], main: Sequence[ContainerState]
) -> Object:  # fmt: skip
    now = phase(initial, main)
    initialized = all(state.code == 0 for state in initial)
    conditions = {"Initialized": initialized, "Ready": now == "Running", "ContainersReady": now == "Running"}
    return {
        "phase": now, "startTime": began, "podIP": "127.0.0.1", "hostIP": "127.0.0.1",
        "conditions": [
            {"type": name, "status": str(true), "lastTransitionTime": began} for name, true in conditions.items()
        ],
        "initContainerStatuses": [container_status(state, pod) for state in initial],
        "containerStatuses": [container_status(state, pod) for state in main],
    }  # fmt: skip
