"""PPO on two nodes: a Ray head and a worker in processes that have what the real operator gives a job's pods.

Ray's workers on both are forks of one process that has imported torch: each import takes six seconds of a core, and
there are a dozen. The nodes themselves and verl's driver are started as an operator's pods start them.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from components.training.ppo.checkpoints import read_weights
from components.training.ppo.config import PpoConfig
from components.training.ppo.stage import PpoCounts, ppo
from qinglan.errors import TrainingError
from qinglan.files.scratch import SCRATCH_VARIABLE
from qinglan.jobs import JobSpec, Outcome
from qinglan.rewriter.model import Student
from standins.verl_cpu.fork_server import SOCKET_VARIABLE
from tests.models.ppo_world import laptop, validated, world
from tests.processes.forked_runs import VERL
from tests.processes.forkserver import forked
from tests.qinglan.jobs.inside.test_ray_cluster import running_with
from tests.qinglan.jobs.rendered_env import LoopbackRunner

pytestmark = pytest.mark.slow
NOWHERE = "http://127.0.0.1:9"
TWO = {
    "device": "cpu", "plugin": "standins.verl_cpu",
    "nodes": 2, "per_node": 1, "tensor_parallel": 1, "reward_workers": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    return world(tmp_path_factory.mktemp("world"))


def train(inputs: tuple[Path, Path, Path], out: Path, config: PpoConfig, runner: LoopbackRunner) -> PpoCounts:
    sft_model, rows, reward = inputs
    return ppo(sft_model, rows, out / "model", out / "log", NOWHERE, config, reward, runner)


@contextmanager
def ray_forks(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """Have Ray's workers forked while the block runs."""
    path = folder / "fork-server"
    server = subprocess.Popen(forked("tests.models.verl_workers", str(path), libraries=VERL))
    patch.setenv(SOCKET_VARIABLE, str(path))
    patch.setenv("PYTHONPATH", str(Path(__file__).parents[3] / "ray_forks"))
    try:
        yield
    finally:
        server.terminate()
        server.wait()


@pytest.mark.nightly
def test_verl_trains_on_two_nodes_and_both_end_well(
    inputs: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SCRATCH_VARIABLE, str(tmp_path / "scratch"))
    config = laptop(steps=1, hardware=TWO)

    with ray_forks(monkeypatch, tmp_path):
        counts = train(inputs, tmp_path, config, LoopbackRunner(tmp_path))

    assert counts.steps == 1
    assert "sft-2x1-master-0 ended with code 0" in (tmp_path / "ppo-worker-0.log").read_text()
    [best] = tmp_path.glob("scratch/ppo/*/best/actor")
    assert (best / "model_world_size_2_rank_1.pt").is_file(), "the weights were sharded over both nodes"
    assert read_weights(best)
    assert Student.load(tmp_path / "model").write([validated(1, "dev")])[0].text
    assert running_with(f"{SCRATCH_VARIABLE}={tmp_path / 'scratch'}") == []


class Ended(LoopbackRunner):
    """A job that was found or was not, and that failed."""

    attaching = False

    def attaches(self, spec: JobSpec) -> bool:
        return self.attaching

    def run(self, *_: object, **__: object) -> Outcome:
        return Outcome(1, "Pod ppo-worker-0 was evicted.")


def test_the_files_of_a_running_job_stay_and_those_of_a_new_job_are_cleared(
    inputs: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SCRATCH_VARIABLE, str(tmp_path / "scratch"))
    runner, config = Ended(tmp_path), laptop(hardware=TWO)

    def attempt() -> Path:
        with pytest.raises(TrainingError, match="Pod ppo-worker-0 was evicted"):
            train(inputs, tmp_path, config, runner)
        [work] = tmp_path.glob("scratch/ppo/*")
        return work / "verl.jsonl"

    verl_log = attempt()
    token = verl_log.with_name("ray-token").read_text()
    verl_log.touch()
    runner.attaching = True
    assert attempt().is_file()
    runner.attaching = False
    assert not attempt().is_file()
    assert verl_log.with_name("ray-token").read_text() == token, "another one would be another job"
