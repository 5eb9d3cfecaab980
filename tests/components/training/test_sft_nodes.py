"""SFT on two nodes: real processes with the environments that the real operator rendered, joined over gloo."""

from pathlib import Path

import orjson
import pytest

from components.training.sft.command import Paths, train_command
from components.training.sft.config import SftConfig
from components.training.sft.stage import sft
from qinglan.errors import TrainingError
from qinglan.jobs import JobSpec
from qinglan.jobs.failures import explain_failure
from qinglan.scratch import VARIABLE
from tests.qinglan.jobs.rendered import LoopbackRunner
from tests.tiny import tiny_model
from tests.training_rows import chats

pytestmark = pytest.mark.slow

ONE = SftConfig(
    device="cpu", tuner="full", model_type="qwen3", template="chatml", dtype="float32", epochs=8.0, batch=8,
    eval_batch=16, accumulation=1, learning_rate=2e-2, max_length=256, evaluate_every=24, patience=0, log_every=4,
    workers=0, max_new_tokens=24,
)  # fmt: skip
TWO = ONE.model_copy(update={"nodes": 2, "batch": 4})
"""The same rows at each step: half of them on each node."""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "scratch"))
    chats(tmp_path / "chats")
    return tiny_model(tmp_path / "base", stage="base")


def losses(log: Path) -> list[float]:
    rows = [orjson.loads(line) for line in (log / "metrics.jsonl").read_bytes().splitlines()]
    return [row[name] for row in rows for name in ("loss", "eval_loss") if name in row]


def test_two_nodes_learn_what_one_process_learns_from_the_same_rows(base: Path, tmp_path: Path) -> None:
    rows, runner = tmp_path / "chats", LoopbackRunner(tmp_path)
    one = sft(base, rows, tmp_path / "one" / "model", tmp_path / "one" / "log", ONE)

    two = sft(base, rows, tmp_path / "two" / "model", tmp_path / "two" / "log", TWO, runner)

    expected = losses(tmp_path / "one" / "log")
    assert len(expected) == 15
    assert losses(tmp_path / "two" / "log") == pytest.approx(expected, rel=1e-4)
    assert (two.steps, two.rows) == (one.steps, one.rows) == (48, 48)
    assert list((tmp_path / "scratch" / "inputs").glob("*/base")), "a job's pods cannot see the step's own files"


def test_with_rank_alone_each_would_train_a_copy_and_none_does(base: Path, tmp_path: Path) -> None:
    """What the operator sets, and nothing of ours; a GPU's settings, by which nothing else joins them."""
    paths = Paths(base, tmp_path / "chats" / "train.jsonl", tmp_path / "chats" / "dev.jsonl", tmp_path / "out")
    command = train_command(TWO, paths)
    alone = {name: value for name, value in command.environment.items() if name != "NPROC_PER_NODE"}
    argv = " ".join(command.argv).replace("--use_cpu true", "").split()
    spec = JobSpec("sft", command._replace(argv=argv, environment=alone), nodes=2, join="torchrun")

    outcome = LoopbackRunner(tmp_path, alone=True).run(spec, tmp_path / "0.log")

    assert outcome.code != 0
    said = explain_failure("ms-swift", outcome, tmp_path / "0.log")
    assert isinstance(said, TrainingError)
    assert "2 processes were to train one model; torch.distributed knows of 1 and the trainer of 1" in str(said)
    assert not list(tmp_path.glob("out/checkpoint-*"))


@pytest.mark.parametrize(
    ("wanted", "torch_knows", "trainer_knows", "well"),
    [(1, 1, 1, True), (8, 8, 8, True), (8, 1, 1, False), (2, 2, 1, False), (8, 4, 4, False), (1, 2, 2, False)],
)
def test_as_many_as_were_asked_for_train_together(
    wanted: int, torch_knows: int, trainer_knows: int, well: bool
) -> None:
    from components.training.sft.plugin.together import refuse_copies

    if well:
        refuse_copies(wanted, torch_knows, trainer_knows)
    else:
        with pytest.raises(TrainingError, match=f"{wanted} processes were to train one model"):
            refuse_copies(wanted, torch_knows, trainer_knows)
