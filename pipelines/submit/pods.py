"""Read a run's pods, if that is allowed: the reason why a pod waits or has failed, which KFP does not report."""

from typing import Any, Literal, NamedTuple

from pipelines.checks.cluster.cluster_reader import TIMEOUTS
from pipelines.submit.workflow import RUN_LABEL, step_of_node

RUN_LABELS = (RUN_LABEL, "qinglan.dev/run")
"""Labels with the run's id: the first on pods that KFP makes for steps, the second on pods of a job that a step
starts."""

STEP_LABEL, NODE_NAME = "qinglan.dev/step", "workflows.argoproj.io/node-name"
# Reasons for which a container will not start, however long one waits
# (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-state-waiting).
WAITING = {"CreateContainerConfigError", "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CrashLoopBackOff"}
LAST_LINES = 15


class PodProblem(NamedTuple):
    """The reason why a pod of a run cannot go on, or how it ended."""

    step: str
    name: str
    state: Literal["waiting", "failed"]
    why: str
    container: str = "main"


class ClusterPods:
    """The pods of one namespace; if they may not be read, the run is followed without them."""

    def __init__(self, api: Any, namespace: str) -> None:
        from kubernetes import client

        self._core, self._namespace = client.CoreV1Api(api), namespace

    def stuck(self, run_id: str) -> list[PodProblem]:
        """Return the problems of pods that cannot go on or have failed; empty if pods may not be read."""
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        problems: dict[str, PodProblem] = {}
        try:
            for label in RUN_LABELS:
                listed = self._core.list_namespaced_pod(
                    self._namespace, label_selector=f"{label}={run_id}", _request_timeout=TIMEOUTS
                )
                # Some pods have both labels.
                problems |= {pod.name: pod for item in listed.items if (pod := read_pod(item))}
        except (ApiException, HTTPError):
            return []
        return list(problems.values())

    def last_lines(self, pod: PodProblem) -> list[str]:
        """Return the last lines of a pod's log, if they can still be read."""
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            text = self._core.read_namespaced_pod_log(
                pod.name, self._namespace, container=pod.container, tail_lines=LAST_LINES, _request_timeout=TIMEOUTS
            )
        except (ApiException, HTTPError):
            return []
        return str(text).rstrip().splitlines()


def read_pod(pod: Any) -> PodProblem | None:
    """Return the problem of a pod; None if the pod runs or has done its work."""
    step, name, status = _step(pod.metadata), pod.metadata.name, pod.status
    if status.phase == "Failed":
        return _failed(step, name, status)
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return PodProblem(step, name, "waiting", condition.message or condition.reason or "no node takes it")
    for container in _containers(status):
        waiting = container.state and container.state.waiting
        if waiting and waiting.reason in WAITING:
            why = f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
            return PodProblem(step, name, "waiting", why)
    return None


def _failed(step: str, name: str, status: Any) -> PodProblem:
    for container in _containers(status):
        ended = container.state and container.state.terminated
        if ended and ended.exit_code:
            reason = f" ({ended.reason})" if ended.reason else ""
            why = f"container {container.name} ended with {ended.exit_code}{reason}"
            return PodProblem(step, name, "failed", why, container.name)
    return PodProblem(step, name, "failed", status.message or status.reason or "it does not say why")


def _step(metadata: Any) -> str:
    """Return the step to which the pod belongs; for the pod of a step's driver, STEP-driver."""
    if step := (metadata.labels or {}).get(STEP_LABEL):
        return str(step)
    return step_of_node(str((metadata.annotations or {}).get(NODE_NAME, metadata.name)))


def _containers(status: Any) -> list[Any]:
    return [*(status.init_container_statuses or ()), *(status.container_statuses or ())]
