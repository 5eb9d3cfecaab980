"""Run a training command: here as a process of its own; the same command in the pods of a job on a cluster."""

from collections.abc import Mapping
from typing import Any

from qinglan.jobs.local import LocalRunner, run_command
from qinglan.jobs.spec import Command, JobSpec, Outcome, Runner

__all__ = ["Command", "JobSpec", "LocalRunner", "Outcome", "Runner", "run_command", "runner"]


def runner(device: str, task_config: Mapping[str, Any] | None) -> Runner:
    """On the cluster where Kubeflow handed a task's resources on; else on this machine.

    `task_config` holds the fields of dsl.TaskConfig. A pipeline on a laptop has none of them.
    """
    if device == "cpu" or not task_config or not task_config.get("resources"):
        return LocalRunner()
    from qinglan.jobs.launch_context import read_launch_context
    from qinglan.jobs.pytorchjob import PyTorchJobRunner
    from qinglan.kubernetes.client import connect

    api = connect()
    return PyTorchJobRunner(api, read_launch_context(api, task_config))
