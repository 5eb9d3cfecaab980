"""A run is followed to its end, whatever happens on the way to KFP; and whoever cancels it is told the truth."""

from typing import Any

import pytest

from pipelines.checks.cluster.graph import Graph
from pipelines.submit.follower import ClusterView, Follower, PollIntervals, cancel_message
from pipelines.submit.kfp_client import KfpAccess, KfpClient, Run, Task
from pipelines.submit.pods import PodProblem
from pipelines.submit.step_states import step_states
from pipelines.submit.workflow import WorkflowSnapshot, snapshot_of
from qinglan.errors import ConfigError, GateHeldError, OutageError, TrainingError
from tests.kfp.stand_in import SUCCEEDS, Fault, Scene, StandIn, serving
from tests.pipelines.submit.conftest import started

QUICK = PollIntervals(first=0.005, longest=0.01, pods=0.0, settle=5.0, patience=5.0, cancel=30.0)


def follower(
    kfp: KfpClient, run_id: str, pods: Any = None, workflow: Any = None, **pace: float
) -> tuple[Follower, list[str]]:
    messages: list[str] = []
    cluster = ClusterView("team", pods, workflow)
    return Follower(kfp, run_id, messages.append, cluster, QUICK._replace(**pace)), messages


def test_each_change_of_a_step_is_one_line_and_kfps_own_tasks_are_none(server: StandIn, small: Graph) -> None:
    watcher, lines = follower(*started(server, small))

    run = watcher.follow()

    assert run.state == "SUCCEEDED"
    assert lines == ["▶ train running", "✓ train done", "✓ gate done", "✓ release done"]
    assert watcher.states == {"train": "SUCCEEDED", "gate": "SUCCEEDED", "release": "SUCCEEDED"}


def test_a_failed_step_is_named_with_its_message_and_its_pods_last_words(server: StandIn, small: Graph) -> None:
    server.scenes = (Scene("RUNNING", {"train": "RUNNING"}), Scene("FAILED", {"train": "FAILED"}, "child failed"))
    watcher, _ = follower(*started(server, small), FailedPods())

    with pytest.raises(TrainingError) as error:
        watcher.raise_unless_released(watcher.follow())

    assert "failed at train. child failed" in str(error.value)
    assert "train: pod train-1: container main ended with 1\n  | CUDA out of memory" in str(error.value)
    assert f"The page: {server.url}/#/runs/details/" in str(error.value)


class FailedPods:
    def stuck(self, run_id: str) -> list[PodProblem]:
        return [
            PodProblem("train", "train-1", "failed", "container main ended with 1"),
            PodProblem("gate", "gate-1", "waiting", "0/4 nodes are available"),
        ]

    def last_lines(self, pod: PodProblem) -> list[str]:
        return ["CUDA out of memory"]


def test_why_a_pod_waits_is_said_once(server: StandIn, small: Graph) -> None:
    watcher, lines = follower(*started(server, small), FailedPods())

    watcher.follow()

    assert lines.count("· gate waits: 0/4 nodes are available") == 1


class PlayedWorkflow:
    """The Workflow of a run, at each reading the next of these; the last stays."""

    def __init__(self, *workflows: Any) -> None:
        self._workflows = list(workflows)

    def read(self, run_id: str) -> WorkflowSnapshot:
        current = self._workflows.pop(0) if len(self._workflows) > 1 else self._workflows[0]
        return snapshot_of(current)


STALE = Scene("SUCCEEDED", {"train": "SUCCEEDED", "gate": "RUNNING"})
"""As KFP lists a run whose Workflow Argo has compressed: the list stays as it was."""


def nodes(**phases: str) -> dict[str, Any]:
    """A Workflow with these tasks and their pods, as Argo writes it."""
    return {"status": {"nodes": dict(node(name, phase) for name, phase in phases.items())}}


def node(name: str, phase: str) -> tuple[str, dict[str, Any]]:
    task = name.replace("_", "-")
    return f"small-{task}", {"name": f"small.root.{task}", "displayName": task, "type": "DAG", "phase": phase}


def pod_node(step: str, phase: str, message: str) -> dict[str, Any]:
    name = f"small.root.{step}.executor(0)"
    return {"name": name, "displayName": "executor(0)", "type": "Pod", "phase": phase, "message": message}


def test_steps_that_kfps_list_no_longer_has_are_those_of_the_workflow(server: StandIn, small: Graph) -> None:
    server.scenes = (Scene("RUNNING", {"train": "RUNNING"}), STALE)
    done = nodes(train="Succeeded", gate="Succeeded", condition_1="Succeeded", release="Succeeded")
    watcher, lines = follower(
        *started(server, small), workflow=PlayedWorkflow({}, nodes(train="Succeeded", gate="Running"), done)
    )

    watcher.raise_unless_released(watcher.follow())

    assert lines == ["▶ train running", "✓ train done", "▶ gate running", "✓ gate done", "✓ release done"]


def test_a_step_that_the_cache_answered_is_told_from_one_that_ran(server: StandIn, small: Graph) -> None:
    server.scenes = (Scene("SUCCEEDED", {"train": "SUCCEEDED", "gate": "SUCCEEDED"}),)
    done = nodes(train="Succeeded", gate="Succeeded", condition_1="Succeeded", release="Succeeded")
    name, driver = node("train-driver", "Succeeded")
    driver["outputs"] = {"parameters": [{"name": "cached-decision", "value": "true"}]}
    done["status"]["nodes"][name] = driver
    watcher, lines = follower(*started(server, small), workflow=PlayedWorkflow(done))

    watcher.follow()

    assert lines == ["✓ train answered from KFP's cache", "✓ gate done", "✓ release done"]


def test_without_the_workflow_a_list_that_ends_early_is_no_success(server: StandIn, small: Graph) -> None:
    server.scenes = (STALE,)
    watcher, _ = follower(*started(server, small), settle=0.05)

    with pytest.raises(OutageError):
        watcher.raise_unless_released(watcher.follow())


def test_a_step_that_failed_after_kfps_list_ended_is_named_with_argos_reason(server: StandIn, small: Graph) -> None:
    server.scenes = (Scene("FAILED", {"train": "SUCCEEDED", "gate": "RUNNING"}),)
    workflow = nodes(train="Succeeded", gate="Succeeded", condition_1="Failed", release="Failed")
    refused = 'pods "small-1" is forbidden: violates PodSecurity "restricted:latest"'
    workflow["status"]["nodes"]["pod"] = pod_node("release", "Error", refused)
    watcher, _ = follower(*started(server, small), workflow=PlayedWorkflow(workflow))

    with pytest.raises(TrainingError) as error:
        watcher.raise_unless_released(watcher.follow())

    assert "failed at release." in str(error.value) and f"release: {refused}" in str(error.value)


def test_a_pod_over_quota_is_said_once_though_it_is_refused_again_and_again(server: StandIn, small: Graph) -> None:
    server.scenes = (*[Scene("RUNNING", {"train": "RUNNING"})] * 4, SUCCEEDS[-1])
    refused = 'pods "small-1" is forbidden: exceeded quota: compute, used: requests.memory={}Gi'
    steps = [nodes(train="Running"), nodes(train="Running"), nodes(train="Running")]
    messages = ("PodInitializing", refused.format(16), refused.format(18))
    for workflow, message in zip(steps, messages, strict=True):
        workflow["status"]["nodes"]["pod"] = pod_node("train", "Pending", message)
    done = nodes(train="Succeeded", gate="Succeeded", condition_1="Succeeded", release="Succeeded")
    watcher, lines = follower(*started(server, small), workflow=PlayedWorkflow(*steps, done))

    watcher.follow()

    assert [line for line in lines if "waits" in line] == [f"· train waits: {refused.format(16)}"]


def test_a_workflow_that_cannot_be_read_is_said_once(server: StandIn, small: Graph) -> None:
    offloaded = {"status": {"offloadNodeStatusVersion": "fnv:1"}}
    watcher, lines = follower(*started(server, small), workflow=PlayedWorkflow(offloaded))

    assert watcher.follow().state == "SUCCEEDED"
    assert [line for line in lines if "database of its own. Steps are shown as KFP lists them" in line] == lines[:1]
    assert lines[1:] == ["▶ train running", "✓ train done", "✓ gate done", "✓ release done"]


STEPS = {"train": "SUCCEEDED", "gate": "SUCCEEDED"}
HELD = Scene("SUCCEEDED", {**STEPS, "condition-1": "SKIPPED"})


LATE = (Scene("SUCCEEDED", STEPS), Scene("SUCCEEDED", {**STEPS, "condition-1": "RUNNING"}), HELD)
"""As KFP 2.17 listed the steps of a run that was over."""


@pytest.mark.parametrize(
    ("scenes", "workflow"),
    [
        ((HELD,), None),
        (LATE, None),
        ((STALE,), PlayedWorkflow(nodes(train="Succeeded", gate="Succeeded", condition_1="Skipped"))),
    ],
)
def test_a_held_gate_is_a_result_and_no_success(
    server: StandIn, small: Graph, scenes: tuple[Scene, ...], workflow: PlayedWorkflow | None
) -> None:
    server.scenes = scenes
    watcher, _ = follower(*started(server, small), workflow=workflow)

    with pytest.raises(GateHeldError):
        watcher.raise_unless_released(watcher.follow())


@pytest.mark.parametrize(
    "fault", [Fault("/runs/"), Fault("/runs/", 503), Fault("/runs/", 500, b"{}"), Fault("/versions/", 502)]
)
def test_an_answer_that_is_lost_while_following_is_asked_for_again(
    server: StandIn, small: Graph, fault: Fault
) -> None:
    watcher, lines = follower(*started(server, small))
    server.faults += [fault, fault]

    assert watcher.follow().state == "SUCCEEDED"

    assert len([line for line in lines if line.endswith("Asking again.")]) == 1
    assert lines.count("KFP answers again.") == 1


def test_kfp_that_stays_away_is_an_outage_and_the_run_goes_on(small: Graph) -> None:
    with serving(StandIn()) as server:
        kfp, run_id = started(server, small)
    watcher, _ = follower(kfp, run_id, patience=0.05)

    with pytest.raises(OutageError, match=f"The run goes on without you: `qinglan follow {run_id}`"):
        watcher.follow()


def test_a_run_that_is_not_there_is_named(server: StandIn) -> None:
    watcher, _ = follower(KfpClient(KfpAccess(server.url)), "nobody")

    with pytest.raises(ConfigError, match=rf"run nobody: .*{server.url}/#/runs$"):
        watcher.follow()


def test_a_run_whose_graph_is_gone_is_followed_all_the_same(server: StandIn, small: Graph) -> None:
    watcher, lines = follower(*started(server, small))
    server.versions.clear()

    assert watcher.follow().state == "SUCCEEDED"
    assert lines == ["▶ train running", "✓ train done", "✓ gate done", "✓ release done"]


def test_canceling_ends_a_run(server: StandIn, small: Graph) -> None:
    server.scenes = (Scene("RUNNING", {"train": "RUNNING"}),)
    watcher, lines = follower(*started(server, small))

    run = watcher.cancel()

    assert run.state == "CANCELED"
    assert cancel_message(run, "page").endswith(": canceled")
    assert lines == [f"{run.name}: cancel asked for", "▶ train running"]


def test_a_run_that_stays_canceling_is_said_to_and_not_waited_for(server: StandIn, small: Graph) -> None:
    server.scenes, server.ends_canceled = (Scene("RUNNING"),), False
    watcher, _ = follower(*started(server, small), cancel=0.1)

    run = watcher.cancel()

    assert run.state == "CANCELING"
    watcher.cancel()
    assert len([call for call in server.heard if call.endswith(":terminate")]) == 1


def test_a_step_in_a_loop_is_as_its_worst_part() -> None:
    tasks = tuple(Task("train", state) for state in ("SUCCEEDED", "FAILED", "RUNNING"))
    unknown = Task("gate", "TELEPORTED")

    states = step_states(Run("1", "x", "RUNNING", "", (*tasks, unknown)), frozenset({"train", "gate"}))

    assert states == {"train": "FAILED"}
