"""The states of a run's steps, read from KFP's tasks and the run's graph: pure functions over plain data."""

from collections.abc import Mapping
from typing import Any

from pipelines.submit.kfp_client import Run

STATES_BY_SEVERITY = ("SKIPPED", "SUCCEEDED", "PENDING", "PAUSED", "RUNNING", "CANCELING", "CANCELED", "FAILED")

KFP_OWN_TASKS = frozenset({"root", "executor"})
"""Tasks that KFP lists beside the steps; used to recognise steps when a run's graph is gone."""


def branches(spec: Mapping[str, Any]) -> frozenset[str]:
    """Find the branches that every run reaches; whether one was taken shows the gate's verdict."""
    tasks = spec.get("root", {}).get("dag", {}).get("tasks", {})
    return frozenset(name for name in tasks if name.startswith("condition-"))


def step_names(spec: Mapping[str, Any]) -> frozenset[str]:
    """Collect the tasks that run a container, by KFP's names, without the branches around them."""
    components = spec.get("components", {})
    dags = [spec.get("root", {}), *components.values()]
    return frozenset(
        name
        for component in dags
        for name, task in component.get("dag", {}).get("tasks", {}).items()
        if "dag" not in components.get(task["componentRef"]["name"], {})
    )


def step_states(run: Run, names: frozenset[str]) -> dict[str, str]:
    """Map steps to their states, without the other tasks that KFP lists: drivers, executors, branches.

    If a step's driver fails, the step never starts and counts as failed. A step in a loop has the worst state of all
    its runs.
    """
    states: dict[str, str] = {}
    for task in run.tasks:
        # A step's pod is made by its driver, a pod of its own: if the driver fails, the step itself never appears.
        name = task.name.removesuffix("-driver") if task.state == "FAILED" else task.name
        is_step = name in names if names else name not in KFP_OWN_TASKS and not name.startswith("condition-")
        if is_step and task.state in STATES_BY_SEVERITY and not name.endswith("-driver"):
            states[name] = max(states.get(name, STATES_BY_SEVERITY[0]), task.state, key=STATES_BY_SEVERITY.index)
    return states
