"""python -m benchmarks.jobs: what following a job costs, on a real control plane whose nodes are simulated.

The ratio is the time of a job through the launcher against the same job made by raw calls and polled twice a second.
The cluster is the tests' own, or the one whose kubeconfig QINGLAN_TEST_CLUSTER names.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.report import report
from qinglan.jobs import Command, JobSpec
from qinglan.jobs.cluster.launch_context import LaunchContext
from qinglan.jobs.cluster.manifest import render_pytorchjob
from qinglan.jobs.cluster.pytorchjob import PyTorchJobRunner
from qinglan.kubernetes.client import Api
from tests.cluster.plane.cluster import Cluster, chosen, fresh_namespace

PAIRS = 8
POLL_SECONDS = 0.5
TARGET = 1.2
PODS = {"sim/exit-code": "0", "sim/run-seconds": "3s"}
IMAGE = "qinglan/sft@sha256:" + "0" * 64


class Times(NamedTuple):
    noticed: float
    """Seconds from the call until the follower knows the job."""

    done: float


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, chosen(Path(folder)) as cluster:
        with fresh_namespace(cluster) as namespace:
            pairs = [alternately(cluster, namespace, Path(folder), number) for number in range(PAIRS)]
        ratio = statistics.median(times.done / raw for times, raw in pairs)
        noticed = statistics.median(times.noticed for times, _ in pairs)
        print(f"a job of 3 s: {ratio:.2f} times raw calls; seen {noticed * 1000:.0f} ms after `run`", flush=True)
    report("jobs", ratio, TARGET, ratio <= TARGET, seen_ms=round(noticed * 1000), pairs=PAIRS)


def alternately(cluster: Cluster, namespace: str, folder: Path, number: int) -> tuple[Times, float]:
    """Ours, and raw calls: now the one first, now the other."""
    sides: list[Callable[[], Any]] = [
        lambda: run_qinglan_job(Api(cluster.admin(), namespace), folder, f"ours-{number}"),
        lambda: raw(cluster, namespace, f"raw-{number}"),
    ]
    order = sides if number % 2 else sides[::-1]
    first, second = order[0](), order[1]()
    return (first, second) if number % 2 else (second, first)


def run_qinglan_job(api: Api, folder: Path, run: str) -> Times:
    heard: list[float] = []
    began = time.monotonic()
    runner = PyTorchJobRunner(api, placement(api.namespace, run), out=lambda line: heard.append(time.monotonic()))
    outcome = runner.run(step("sft"), folder / f"{run}.log")
    assert outcome.code == 0, outcome
    return Times(heard[0] - began, time.monotonic() - began)


def raw(cluster: Cluster, namespace: str, run: str) -> float:
    """Do what a user would write: make it, and ask until it is over."""
    from kubernetes import client

    api = client.CustomObjectsApi(cluster.admin())
    kind = ("kubeflow.org", "v1", namespace, "pytorchjobs")
    began = time.monotonic()
    created = api.create_namespaced_custom_object(*kind, render_pytorchjob(step("sft"), placement(namespace, run)))
    while True:
        job = api.get_namespaced_custom_object(*kind, created["metadata"]["name"])
        states = {
            condition["type"]
            for condition in job.get("status", {}).get("conditions") or ()
            if condition["status"] == "True"
        }
        if states & {"Succeeded", "Failed"}:
            return time.monotonic() - began
        time.sleep(POLL_SECONDS)


def placement(namespace: str, run: str) -> LaunchContext:
    task = {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    return LaunchContext(namespace, run, IMAGE, "", task, annotations=PODS)


def step(name: str) -> JobSpec:
    return JobSpec(name, Command(["python", "train.py"]), hours=1.0)


if __name__ == "__main__":
    main()
