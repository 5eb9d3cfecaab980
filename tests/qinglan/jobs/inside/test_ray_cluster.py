"""A Ray cluster in the pods of a job: on loopback each pod is a process, with the operator's own environment."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from qinglan.errors import ConfigError, TrainingError
from qinglan.jobs.local import terminate_process_group
from tests.qinglan.jobs.rendered_env import inside, on_loopback, pod

pytestmark = pytest.mark.slow

TOKEN = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "ab" * 32,
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
}
NODES = """
import os, ray, sys
ray.init(log_to_driver=False)
print(sorted(node["NodeName"] for node in ray.nodes() if node["Alive"]), ray.cluster_resources()["GPU"], flush=True)
print("RANK" in os.environ, flush=True)
sys.exit(7)
"""
TRAINING = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"

PATIENCE = 900.0
"""A busy machine starts Ray several times before it is up."""

Pods = list["subprocess.Popen[bytes]"]


class Job:
    """Two pods, each with a log."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.pods, self.environments = folder, Pods(), on_loopback(2, 1)

    def start(self, rank: int, argv: list[str], *options: str, **changes: str) -> None:
        environment = {**self.environments[rank], **TOKEN, **changes}
        self.pods.append(pod(inside("ray", 2, 1, argv, *options), environment, self.folder / f"{rank}.log"))

    def log_text(self, rank: int) -> str:
        return (self.folder / f"{rank}.log").read_text()

    def codes(self) -> list[int]:
        return [process.wait(PATIENCE) for process in self.pods]

    def train(self) -> None:
        """Two pods whose training has begun."""
        trains = self.folder / "trains"
        for rank in (0, 1):
            self.start(rank, [sys.executable, "-c", TRAINING, str(trains)])
        until = time.monotonic() + PATIENCE
        while not trains.exists():
            running = all(process.poll() is None for process in self.pods)
            assert running and time.monotonic() < until, f"no training yet: {self.log_text(0)}\n{self.log_text(1)}"
            time.sleep(0.1)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    started = Job(tmp_path)
    yield started
    for process in started.pods:
        terminate_process_group(process)
    port = started.environments[0]["MASTER_PORT"]
    assert running_with(f"MASTER_PORT={port}") == [] and running_with(str(tmp_path)) == [], "processes were left"


def running_with(text: str) -> list[str]:
    """Commands or first environments that hold the text."""
    result = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline() + [f"{name}={value}" for name, value in process.environ().items()]
            result += [" ".join(process.cmdline())] if any(text in word for word in words) else []
        except psutil.Error:
            continue
    return result


def test_all_nodes_are_there_before_the_command_starts_and_end_with_its_code(job: Job) -> None:
    """The code is the head's; the worker did its part and ends well."""
    argv = [sys.executable, "-c", NODES]
    job.start(1, argv)
    job.start(0, argv)

    assert job.codes() == [0, 7], job.log_text(0) + job.log_text(1)
    assert "['sft-2x1-master-0', 'sft-2x1-worker-0'] 2.0\nFalse" in job.log_text(0)
    assert "sft-2x1-master-0 ended with code 7" in job.log_text(1)


def test_a_worker_that_is_killed_ends_the_job_with_its_name(job: Job) -> None:
    job.train()

    kill_all_of(job.pods[1])

    assert job.pods[0].wait(PATIENCE) == TrainingError.exit_code
    last = job.log_text(0).splitlines()[-1]
    assert last.startswith("qinglan.errors.TrainingError: Training lost 1 of 2 nodes (sft-2x1-worker-0 (rank 1): ")


@pytest.mark.nightly
def test_a_head_that_is_killed_ends_the_worker_with_its_name(job: Job) -> None:
    job.train()

    kill_all_of(job.pods[0])

    assert job.pods[1].wait(PATIENCE) == TrainingError.exit_code
    assert "sft-2x1-master-0 closed the connection without a result" in job.log_text(1)


def test_a_node_that_never_comes_is_named(job: Job) -> None:
    job.start(0, ["true"], "--wait", "3")

    assert job.codes() == [TrainingError.exit_code]
    assert "1 of 2 nodes did not come within 3 s: sft-2x1-worker-0 (rank 1)" in job.log_text(0)


def test_a_worker_without_a_head_says_so(job: Job) -> None:
    job.start(1, ["true"], "--wait", "2")

    assert job.codes() == [TrainingError.exit_code]
    assert "sft-2x1-master-0 did not listen" in job.log_text(1)


def test_a_worker_with_another_token_does_not_join_the_ray_cluster(job: Job) -> None:
    job.start(0, ["true"], "--wait", "6")
    job.start(1, ["true"], "--wait", "3", RAY_AUTH_TOKEN="cd" * 32)

    assert job.codes() == [TrainingError.exit_code] * 2
    assert "did not come within 6 s" in job.log_text(0)


def test_a_cluster_that_anyone_could_enter_is_refused(job: Job) -> None:
    job.start(0, ["true"], RAY_AUTH_TOKEN="")

    assert job.codes() == [ConfigError.exit_code]
    assert "the same RAY_AUTH_TOKEN in each" in job.log_text(0)


def test_told_to_stop_both_end_with_all_that_they_started(job: Job, tmp_path: Path) -> None:
    job.train()

    job.pods[0].terminate()

    assert job.codes() == [143, 0]
    assert running_with(str(tmp_path / "trains")) == []


def kill_all_of(process: "subprocess.Popen[bytes]") -> None:
    """As a pod ends whose node is gone: everything at once."""
    every = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for item in every:
        item.kill()
