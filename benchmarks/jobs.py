"""python -m benchmarks.jobs: what following a job costs, on a real control plane whose nodes are simulated.

The ratio is the time of a job through the launcher against the same job made by raw calls and polled twice a second.
Then one process follows many jobs at once: its memory, its calls to the API server, its processor time.
The cluster is the tests' own, or the one whose kubeconfig QINGLAN_TEST_CLUSTER names.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks.memory import largest_memory
from benchmarks.report import report
from qinglan.jobs import Command, JobSpec
from qinglan.jobs.api import Api, connect
from qinglan.jobs.manifest import render
from qinglan.jobs.placement import Placement
from qinglan.jobs.pytorchjob import PyTorchJobRunner
from tests.cluster.plane.cluster import Cluster, chosen, fresh_namespace

PAIRS = 8
MANY = (1, 100, 500)
POLL_SECONDS = 0.5
SEEN_SECONDS = 300.0
TARGET = 1.2
PODS = {"sim/exit-code": "0", "sim/run-seconds": "3s"}
IMAGE = "qinglan/sft@sha256:" + "0" * 64


class Times(NamedTuple):
    seen: float
    """From the call until the job is known to the follower."""

    done: float


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, chosen(Path(folder)) as cluster:
        with fresh_namespace(cluster) as namespace:
            pairs = [alternately(cluster, namespace, Path(folder), number) for number in range(PAIRS)]
        ratio = statistics.median(ours.done / raw for ours, raw in pairs)
        seen = statistics.median(ours.seen for ours, _ in pairs)
        print(f"a job of 3 s: {ratio:.2f} times raw calls; seen {seen * 1000:.0f} ms after `run`", flush=True)
        followed = {str(count): many_of(cluster, count) for count in MANY}
    report("jobs", ratio, TARGET, ratio <= TARGET, seen_ms=round(seen * 1000), pairs=PAIRS, followed=followed)


def alternately(cluster: Cluster, namespace: str, folder: Path, number: int) -> tuple[Times, float]:
    """Ours, and raw calls: now the one first, now the other."""
    sides: list[Callable[[], Any]] = [
        lambda: ours(Api(cluster.admin(), namespace), folder, f"ours-{number}"),
        lambda: raw(cluster, namespace, f"raw-{number}"),
    ]
    order = sides if number % 2 else sides[::-1]
    first, second = order[0](), order[1]()
    return (first, second) if number % 2 else (second, first)


def ours(api: Api, folder: Path, run: str) -> Times:
    heard: list[float] = []
    began = time.monotonic()
    runner = PyTorchJobRunner(api, placement(api.namespace, run), out=lambda line: heard.append(time.monotonic()))
    outcome = runner.run(step("sft"), folder / f"{run}.log")
    assert outcome.code == 0, outcome
    return Times(heard[0] - began, time.monotonic() - began)


def raw(cluster: Cluster, namespace: str, run: str) -> float:
    """What a user would write: make it, and ask until it is over."""
    from kubernetes import client

    api = client.CustomObjectsApi(cluster.admin())
    kind = ("kubeflow.org", "v1", namespace, "pytorchjobs")
    began = time.monotonic()
    made = api.create_namespaced_custom_object(*kind, render(step("sft"), placement(namespace, run)))
    while True:
        job = api.get_namespaced_custom_object(*kind, made["metadata"]["name"])
        states = {one["type"] for one in job.get("status", {}).get("conditions") or () if one["status"] == "True"}
        if states & {"Succeeded", "Failed"}:
            return time.monotonic() - began
        time.sleep(POLL_SECONDS)


def many_of(cluster: Cluster, count: int) -> dict[str, float]:
    """In a process of its own, which prints its figures as its last line."""
    with fresh_namespace(cluster) as namespace:
        environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "QINGLAN_NAMESPACE": namespace}
        command = [sys.executable, "-m", "benchmarks.jobs", "--many", str(count)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = orjson.loads(done.stdout.splitlines()[-1])
    print(f"{count} jobs at once: {figures}", flush=True)
    return figures


def follow_many(count: int, folder: Path) -> dict[str, float]:
    """As many threads of one runner, each with a job of its own."""
    api = connect()
    made, all_made = set[str](), threading.Event()

    def out(line: str) -> None:
        made.add(line.split()[1])
        if len(made) == count:
            all_made.set()

    runner = PyTorchJobRunner(api, placement(api.namespace, "many"), out=out)
    before = largest_memory()
    began = time.monotonic()

    def one(number: int) -> int:
        spec = step(f"step-{number}")._replace(per_node=0)  # or 32 GPUs would make them wait for each other
        return runner.run(spec, folder / f"{number}.log").code

    with ThreadPoolExecutor(count) as pool:
        running = [pool.submit(one, number) for number in range(count)]
        all_made.wait(SEEN_SECONDS)
        seen = time.monotonic() - began
        codes = [each.result() for each in running]
    seconds = time.monotonic() - began
    assert not any(codes), codes
    calls = {name: number / count for name, number in api.calls.items() if not name.endswith("/log")}
    return {
        "all_seen_seconds": round(seen, 1),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(time.process_time(), 1),
        "mb": largest_memory(),
        "grown_mb": largest_memory() - before,
        "calls_a_job": round(sum(calls.values()), 2),
        "watches": sum(api.calls[f"GET {name}"] for name in ("pods", "events")),
        "log_calls_a_job": round(api.calls["GET pods/log"] / count, 2),
    }


def placement(namespace: str, run: str) -> Placement:
    task = {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    return Placement(namespace, run, IMAGE, task=task, annotations=PODS)


def step(name: str) -> JobSpec:
    return JobSpec(name, Command(["python", "train.py"]), hours=1.0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--many"]:
        with tempfile.TemporaryDirectory() as scratch:
            print(orjson.dumps(follow_many(int(sys.argv[2]), Path(scratch))).decode())
    else:
        main()
