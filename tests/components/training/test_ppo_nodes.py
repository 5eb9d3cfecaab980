"""PPO on two nodes: a Ray head and a worker in processes that have what the real operator gives a job's pods."""

import threading
import time
from pathlib import Path

import pytest

from components.training.ppo.checkpoints import read_weights
from components.training.ppo.config import PpoConfig
from components.training.ppo.stage import PpoCounts, ppo
from qinglan.errors import TrainingError
from qinglan.rewriter import Student
from qinglan.scratch import VARIABLE
from tests.ppo_world import laptop, validated, world
from tests.qinglan.jobs.rendered import LoopbackRunner
from tests.qinglan.jobs.test_inside_ray import kill_all_of, running_with

pytestmark = pytest.mark.slow
NOWHERE = "http://127.0.0.1:9"
TWO = {
    "device": "cpu", "nodes": 2, "per_node": 1, "tensor_parallel": 1, "reward_workers": 1, "strategy": "fsdp",
}  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    return world(tmp_path_factory.mktemp("world"))


def train(inputs: tuple[Path, Path, Path], out: Path, config: PpoConfig, runner: LoopbackRunner) -> PpoCounts:
    sft_model, rows, reward = inputs
    return ppo(sft_model, rows, out / "model", out / "log", NOWHERE, config, reward, runner)


def test_verl_trains_on_two_nodes_and_both_end_well(
    inputs: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "scratch"))
    runner = LoopbackRunner(tmp_path)

    counts = train(inputs, tmp_path, laptop(steps=2, every=2, hardware=TWO), runner)

    assert counts.steps == 2
    assert "sft-2x1-master-0 ended with code 0" in (tmp_path / "ppo-worker-0.log").read_text()
    [best] = tmp_path.glob("scratch/ppo/*/best/actor")
    assert (best / "model_world_size_2_rank_1.pt").is_file(), "the weights were sharded over both nodes"
    assert read_weights(best)
    assert Student.load(tmp_path / "model").write([validated(1, "dev")])[0].text
    assert running_with(f"{VARIABLE}={tmp_path / 'scratch'}") == []


def test_a_worker_that_dies_in_training_ends_the_stage_with_its_name(
    inputs: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "scratch"))
    runner = LoopbackRunner(tmp_path)
    threading.Thread(target=kill_the_worker, args=(runner, tmp_path), daemon=True).start()

    with pytest.raises(TrainingError, match=r"Training lost 1 of 2 nodes \(sft-2x1-worker-0 \(rank 1\)"):
        train(inputs, tmp_path, laptop(steps=1000, every=1000, hardware=TWO), runner)

    assert not (tmp_path / "model").exists()
    assert running_with(f"{VARIABLE}={tmp_path / 'scratch'}") == []


def kill_the_worker(runner: LoopbackRunner, folder: Path) -> None:
    """Once the first step has been trained."""
    while not [log for log in folder.glob("scratch/ppo/*/verl.jsonl") if log.read_bytes().count(b"\n") > 1]:
        time.sleep(0.2)
    kill_all_of(runner.started[1])
