"""Shared parts of the tests of jobs: runners in a namespace of their own, and pods that end as a test says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.lines.cluster_resources import ClusterConfig
from qinglan.jobs import Command, JobSpec, Outcome
from qinglan.jobs.cluster.follower import FollowTimeouts
from qinglan.jobs.cluster.launch_context import LaunchContext
from qinglan.jobs.cluster.manifest import render_pytorchjob
from qinglan.jobs.cluster.pytorchjob import PyTorchJobRunner
from qinglan.kubernetes.client import Api

ONE_NODE = JobSpec("sft", Command(["python", "train.py"]), hours=0.5)
TWO_NODES = ONE_NODE._replace(nodes=2, per_node=4, join="torchrun")
PATIENCE = FollowTimeouts(pending=0.5, outage=240.0, deletion=240.0, log=2.0)
A100_NODES = ClusterConfig().gpu_nodes
TASK: Mapping[str, Any] = {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "node_selector": A100_NODES}
IMAGE = "qinglan/sft@sha256:" + "0" * 64
WAIT_SECONDS = 240.0

ENDS_WELL = {"sim/exit-code": "0", "sim/run-seconds": "200ms"}
ENDS_BADLY = {"sim/exit-code": "3", "sim/run-seconds": "200ms"}
RUNS_ON: dict[str, str] = {}
HELD = {"sim/state": "hold"}


class World(NamedTuple):
    """A namespace of a cluster, and what was printed there."""

    api: Api
    folder: Path
    lines: list[str]

    @property
    def log(self) -> Path:
        return self.folder / "train.log"

    def runner(
        self, pods: Mapping[str, str], patience: FollowTimeouts = PATIENCE, api: Api | None = None, **place: Any
    ) -> PyTorchJobRunner:
        where = LaunchContext(self.api.namespace, "run-1", IMAGE, "fivedoctors", TASK, annotations=pods)
        return PyTorchJobRunner(api or self.api, where._replace(**place), patience, self.lines.append)

    def run(self, pods: Mapping[str, str], spec: JobSpec = ONE_NODE, **more: Any) -> Outcome:
        return self.runner(pods, **more).run(spec, self.log)

    def manifest(self, pods: Mapping[str, str], spec: JobSpec = ONE_NODE) -> dict[str, Any]:
        return render_pytorchjob(spec, self.runner(pods).launch, "of the test")

    def jobs(self) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = self.api.all("pytorchjobs", {})["items"]
        return result

    def pods(self) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = self.api.all("pods", {})["items"]
        return sorted(result, key=lambda pod: str(pod["metadata"]["name"]))

    def finish(self) -> None:
        """Pods that run on end well, a moment from now."""
        for pod in self.pods():
            self.api.merge("pods", pod["metadata"]["name"], {"metadata": {"annotations": ENDS_WELL}})

    def state(self) -> list[str]:
        """The conditions that hold of the one job."""
        return [
            condition["type"]
            for job in self.jobs()
            for condition in job.get("status", {}).get("conditions") or ()
            if condition["status"] == "True"
        ]

    def heard(self, words: str) -> bool:
        return any(words in line for line in self.lines)
