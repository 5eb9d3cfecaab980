"""A run's Workflow in the cluster: the state of each task, and why Argo could make no pod for one.

KFP copies its list of tasks from the Workflow's nodes, if they are not compressed. Above 1 MB Argo compresses the
nodes, and then KFP's list no longer changes.
"""

import gzip
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from pipelines.submit.kfp_client import Task
from qinglan.kubernetes.api_errors import ApiError, explain_api_error
from qinglan.kubernetes.client import Api

RUN_LABEL = "pipeline/runid"
STATES = {
    "Pending": "PENDING", "Running": "RUNNING", "Succeeded": "SUCCEEDED", "Skipped": "SKIPPED", "Failed": "FAILED",
    "Error": "FAILED",
}  # fmt: skip
"""Argo's phases in KFP's words (ToV2 in its model/run.go)."""

ATTEMPT = re.compile(r"\(\d+\)$")
CACHE_DECISION = "cached-decision"
"""Output of a step's driver, which is `true` if KFP's cache answered for the step."""

STARTING = ("ContainerCreating", "PodInitializing")
"""Messages of a pod that is starting normally."""


class NodeProblem(NamedTuple):
    """The reason why a step's pod was not made, waits or has failed, in Argo's words."""

    step: str
    state: str
    why: str


class WorkflowSnapshot(NamedTuple):
    """The nodes of a run's Workflow; empty before the Workflow exists, and after it was deleted."""

    tasks: tuple[Task, ...] = ()
    problems: tuple[NodeProblem, ...] = ()
    unseen: str = ""
    """The reason why the nodes cannot be read; "" if they can."""

    cached: frozenset[str] = frozenset()
    """The steps that KFP's cache answered for."""


class ClusterWorkflow:
    """Reads the Workflow of a run from the cluster; if a request fails, it returns the last snapshot."""

    def __init__(self, api: Api) -> None:
        self._api, self._name, self._last = api, "", WorkflowSnapshot()

    def read(self, run_id: str) -> WorkflowSnapshot:
        """Read the current state of the Workflow."""
        try:
            workflow = self._workflow(run_id)
        except ApiError as error:
            reason = explain_api_error(error, self._api.host, self._api.namespace)
            return self._last if self._last.tasks else WorkflowSnapshot(unseen=str(reason))
        # Argo deletes a finished Workflow after KFP's TTL, an hour: then the last snapshot stays.
        if workflow:
            self._last = snapshot_of(workflow)
        return self._last

    def _workflow(self, run_id: str) -> Mapping[str, Any] | None:
        if self._name:
            return self._api.get("workflows", self._name)
        listed = self._api.all("workflows", {"labelSelector": f"{RUN_LABEL}={run_id}"})["items"]
        if not listed:
            return None
        self._name = str(listed[0]["metadata"]["name"])
        return dict(listed[0])


def snapshot_of(workflow: Mapping[str, Any]) -> WorkflowSnapshot:
    """Read the nodes of a Workflow, compressed ones too."""
    status = workflow.get("status", {})
    # https://argo-workflows.readthedocs.io/en/latest/offloading-large-workflows/
    if status.get("offloadNodeStatusVersion"):
        return WorkflowSnapshot(unseen="Argo keeps the nodes of this Workflow in a database of its own.")
    try:
        nodes = status.get("nodes") or decompress(status.get("compressedNodes", ""))
    except (ValueError, EOFError, OSError) as error:
        return WorkflowSnapshot(unseen=f"The nodes of this Workflow cannot be decompressed ({error}).")
    tasks = tuple(
        Task(str(node.get("displayName", "")), STATES.get(node.get("phase", ""), "")) for node in nodes.values()
    )
    return WorkflowSnapshot(tasks, tuple(_problems(nodes.values())), cached=frozenset(_cached(nodes.values())))


def decompress(text: str) -> dict[str, Any]:
    return dict(orjson.loads(gzip.decompress(b64decode(text, validate=True)))) if text else {}


def _problems(nodes: Iterable[Mapping[str, Any]]) -> Iterable[NodeProblem]:
    for node in nodes:
        state, why = STATES.get(node.get("phase", ""), ""), str(node.get("message") or "")
        if node.get("type") == "Pod" and state in ("PENDING", "FAILED") and why and not why.startswith(STARTING):
            yield NodeProblem(step_of_node(str(node.get("name", ""))), state, why)


def _cached(nodes: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Yield steps whose driver found their outputs in KFP's cache; they have no pod."""
    for node in nodes:
        parameters = (node.get("outputs") or {}).get("parameters") or ()
        if any(it.get("name") == CACHE_DECISION and it.get("value") == "true" for it in parameters):
            yield step_of_node(str(node.get("name", ""))).removesuffix("-driver")


def step_of_node(name: str) -> str:
    """Return the step of a node named run.root.STEP.executor; the node of a driver is named run.root.STEP-driver.

    With a retry strategy, which KFP's own settings of Argo give every template, each part ends with the number of its
    attempt: run(0).root(0).STEP(0).executor(0).
    """
    parts = [ATTEMPT.sub("", part) for part in name.split(".")]
    return parts[-2] if parts[-1] == "executor" and len(parts) > 1 else parts[-1]
