"""SFT on several nodes: whoever would train a copy is found out. How two nodes learn: test_sft_runs.py."""

import os
import subprocess
from pathlib import Path

import pytest

from components.training.sft.command import Paths, train_command
from components.training.sft.config import SftConfig
from qinglan.errors import TrainingError
from qinglan.jobs import Outcome
from qinglan.jobs.command_failures import explain_failure
from tests.components.training.swift_subprocess import refusals
from tests.components.training.verl_subprocess import ask
from tests.models.tiny_rewriter import tiny_model
from tests.models.training_rows import chats
from tests.processes.forked_runs import fork_environment, swift_sockets
from tests.qinglan.jobs.rendered_env import on_loopback

TWO = SftConfig(
    device="cpu", tuner="full", model_type="qwen3", template="chatml", dtype="float32", epochs=8.0, batch=4,
    eval_batch=16, accumulation=1, max_length=256, validations=2, workers=0, nodes=2,
)  # fmt: skip


@pytest.mark.slow
def test_with_rank_alone_each_would_train_a_copy_and_none_does(tmp_path: Path) -> None:
    """The operator's settings, and nothing of ours; a GPU's settings, by which nothing else joins them."""
    base, rows = tiny_model(tmp_path / "base", stage="base"), chats(tmp_path / "chats")
    command = train_command(TWO, Paths(base, rows / "train.jsonl", rows / "dev.jsonl", tmp_path / "out"), rows=48)
    alone = {name: value for name, value in command.environment.items() if name != "NPROC_PER_NODE"}
    argv = " ".join(command.argv).replace("--use_cpu true", "").split()
    forks = fork_environment(swift_sockets())
    first = on_loopback(2, 1)[0]  # it waits for no other, which is the fault

    path = {"PYTHONPATH": f"{forks['PYTHONPATH']}{os.pathsep}{alone['PYTHONPATH']}"}
    environment = {**forks, **alone, **first, **path}
    with (tmp_path / "0.log").open("wb") as log:
        ran = subprocess.run(argv, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False, timeout=600)

    assert ran.returncode != 0
    explanation = explain_failure("ms-swift", Outcome(ran.returncode), tmp_path / "0.log")
    assert isinstance(explanation, TrainingError)
    assert "2 processes were to train one model; torch.distributed knows of 1 and the trainer of 1" in str(
        explanation
    )
    assert not list(tmp_path.glob("out/checkpoint-*"))


@pytest.mark.slow
def test_as_many_as_were_asked_for_train_together() -> None:
    well = [(1, 1, 1), (8, 8, 8)]
    copies = [(8, 1, 1), (2, 2, 1), (8, 4, 4), (1, 2, 2)]

    messages = ask(refusals, [*well, *copies], environment=os.environ)

    assert messages[:2] == ["", ""]
    for (requested, *_), message in zip(copies, messages[2:], strict=True):
        assert message.startswith(f"{requested} processes were to train one model")
