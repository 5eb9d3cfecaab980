"""The nodes of a run's Workflow are read as Argo writes them: plain, compressed, or kept elsewhere."""

import base64
import gzip
import json
from typing import Any

import pytest

from pipelines.submit.kfp_client import Task
from pipelines.submit.workflow import ClusterWorkflow, NodeProblem, WorkflowSnapshot, snapshot_of, step_of_node
from qinglan.kubernetes.api_errors import ApiError

DEPLOY = {
    "name": "rewriter-x.root.condition-1.deploy.executor(1)", "displayName": "executor(1)", "type": "Pod",
    "phase": "Failed", "message": "Error (exit code 2)",
}  # fmt: skip
GENERATE = {"name": "rewriter-x.root.generate", "displayName": "generate", "type": "DAG", "phase": "Succeeded"}
BRANCH = {"name": "rewriter-x.root.condition-1", "displayName": "condition-1", "type": "DAG", "phase": "Omitted"}
NODES = {"rewriter-x-1": GENERATE, "rewriter-x-2": BRANCH, "rewriter-x-3": DEPLOY}


def compressed(nodes: Any) -> str:
    """As Argo's util/file does it."""
    return base64.b64encode(gzip.compress(json.dumps(nodes).encode())).decode()


@pytest.mark.parametrize("status", [{"nodes": NODES}, {"compressedNodes": compressed(NODES)}])
def test_plain_and_compressed_nodes_are_the_same(status: dict[str, Any]) -> None:
    snapshot = snapshot_of({"status": status})

    tasks = (Task("generate", "SUCCEEDED"), Task("condition-1", ""), Task("executor(1)", "FAILED"))
    assert snapshot == WorkflowSnapshot(tasks, (NodeProblem("deploy", "FAILED", "Error (exit code 2)"),))


@pytest.mark.parametrize(
    "status",
    [
        {"compressedNodes": "no base64!"},
        {"compressedNodes": base64.b64encode(b"no gzip").decode()},
        {"compressedNodes": base64.b64encode(gzip.compress(b"no json")).decode()},
        {"compressedNodes": compressed(NODES)[:40]},
    ],
)
def test_nodes_that_cannot_be_decompressed_are_said_to_be(status: dict[str, Any]) -> None:
    snapshot = snapshot_of({"status": status})

    assert snapshot.tasks == () and "cannot be decompressed" in snapshot.unseen


def test_a_step_whose_driver_found_its_outputs_was_answered_from_the_cache() -> None:
    """As KFP's driver wrote them, with upstream's settings of Argo, which try each part again."""
    nodes = {
        str(number): {
            "name": f"x(0).root(0).{step}-driver(0)", "displayName": f"{step}-driver(0)", "type": "Pod",
            "phase": "Succeeded", "outputs": {"parameters": [{"name": "cached-decision", "value": value}]},
        }
        for number, (step, value) in enumerate([("generate", "true"), ("convert", "false")])
    }  # fmt: skip

    assert snapshot_of({"status": {"nodes": nodes}}).cached == {"generate"}


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("x.root.train.executor", "train"),
        ("x.root.condition-1.deploy.executor(2)", "deploy"),
        ("x(0).root(0).train(0).executor(2)", "train"),  # upstream's settings of Argo try each part again
        ("x(0).root(0).train-driver(1)", "train-driver"),
        ("x.root.train-driver", "train-driver"),
        ("x.root-driver", "root-driver"),
        ("executor", "executor"),
    ],
)
def test_a_node_is_its_steps(name: str, step: str) -> None:
    assert step_of_node(name) == step


class PlayedApi:
    """An API server whose answers are these; an error among them is raised."""

    host, namespace = "https://cluster", "team"

    def __init__(self, *answers: Any) -> None:
        self.answers, self.calls = list(answers), list[tuple[str, ...]]()

    def all(self, resource: str, query: dict[str, str]) -> Any:
        return self._next("all", resource, query["labelSelector"])

    def get(self, resource: str, name: str) -> Any:
        return self._next("get", resource, name)

    def _next(self, *call: str) -> Any:
        self.calls.append(call)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_workflow_is_found_by_its_run_then_read_by_name_and_kept_when_an_answer_is_lost_or_it_is_deleted() -> None:
    workflow = {"metadata": {"name": "rewriter-x"}, "status": {"nodes": NODES}}
    api = PlayedApi({"items": []}, {"items": [workflow]}, workflow, ApiError("GET", "workflows", 0, "away"), None)
    reader = ClusterWorkflow(api)  # type: ignore[arg-type]

    assert [len(reader.read("run-1").tasks) for _ in range(5)] == [0, 3, 3, 3, 3]
    assert api.calls[:3] == [("all", "workflows", "pipeline/runid=run-1")] * 2 + [("get", "workflows", "rewriter-x")]


def test_a_workflow_that_may_not_be_read_is_explained() -> None:
    message = 'workflows.argoproj.io is forbidden: User "ann" cannot list resource "workflows" in API group'
    reader = ClusterWorkflow(PlayedApi(ApiError("GET", "workflows", 403, json.dumps({"message": message}))))  # type: ignore[arg-type]

    assert "User ann may not list workflows in namespace team" in reader.read("run-1").unseen
