"""Whole trainings on a CPU: verl itself, a tiny model, a reward that short answers earn."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import orjson
import pytest

from components.training.ppo import stage
from components.training.ppo.checkpoints import keep_best, latest_step, lora_scale, read_weights
from components.training.ppo.config import PpoConfig
from components.training.ppo.export_model import export_checkpoint
from components.training.ppo.stage import PpoCounts, ppo
from qinglan.errors import ConfigError, OutageError, TrainingError
from qinglan.files.digests import digest
from qinglan.files.files import sha256_file
from qinglan.jobs import Outcome
from qinglan.jobs.processes import find_processes, temporary_folder
from qinglan.rewriter.card import read_card
from qinglan.rewriter.model import Student, load_tokenizer
from tests.models.ppo_world import FAULT, laptop, validated, world
from tests.models.tiny_rewriter import SHAPE
from tests.processes.ctrl_c import started_with
from tests.processes.forked_runs import forks_variables, verl_socket
from tests.run_forks.sitecustomize import FORKS_VARIABLE

ROOT = Path(__file__).parents[4]
NOWHERE = "http://127.0.0.1:9"
"""The reward of these tests asks nobody."""


class World(NamedTuple):
    """Inputs that tests share, and a place of their own for each test's outputs."""

    sft_model: Path
    rows: Path
    reward: Path
    out: Path

    def train(self, config: PpoConfig) -> PpoCounts:
        return ppo(self.sft_model, self.rows, self.out / "model", self.out / "log", NOWHERE, config, self.reward)

    @property
    def work(self) -> Path:
        """The training's own folder."""
        [folder] = (self.out / "scratch" / "ppo").iterdir()
        return folder

    def steps(self, log: Path | None = None) -> list[dict[str, float]]:
        path = (log or self.out / "log") / "metrics.jsonl"
        return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    return world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def forked_verl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings of this test begin in a process that has imported verl's libraries: seven seconds of a core less.

    The killed training is started as an operator starts it.
    """
    for name, value in forks_variables(verl_socket()).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def small(inputs: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("QINGLAN_SCRATCH", str(tmp_path / "scratch"))
    yield World(*inputs, tmp_path)
    assert started_with(f"QINGLAN_SCRATCH={tmp_path / 'scratch'}") == [], "processes were left"


def test_a_critic_that_is_not_there_is_an_error_before_anything_starts(small: World) -> None:
    with pytest.raises(ConfigError, match=r"critic_model Qwen/Qwen3-1\.7B: no such folder here"):
        small.train(laptop(critic_model="Qwen/Qwen3-1.7B"))


WHOLE = {
    "steps": 6, "validations": 3, "trackers": ["tensorboard", "wandb"],
    # With dev rows this few, a policy that moves may fall far enough for an alarm to end its training.
    "actor_learning_rate": 1e-6,
}  # fmt: skip
CHILD = """
import sys
sys.path[:0] = [{root!r}]
import types
tests = types.ModuleType("tests"); tests.__path__ = [{root!r} + "/tests"]; sys.modules["tests"] = tests
from pathlib import Path
from components.training.ppo.stage import ppo
from tests.models.ppo_world import laptop
ppo(*(Path(word) for word in sys.argv[1:5]), {url!r}, laptop(**{config!r}), Path(sys.argv[5]))
"""


@pytest.mark.slow
def test_a_training_that_is_killed_and_then_meets_an_outage_goes_on_to_a_rewriter(
    small: World, forked_verl: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One training in three parts: whole trainings cost minutes."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    config = laptop(**WHOLE)

    mark, folder = kill_after_a_checkpoint(small)
    reached = latest_step(small.work / "checkpoints")
    assert reached == 2

    monkeypatch.setenv(FAULT, f"outage:{8 + 5}")  # dev, perhaps, and a bit of the next step
    with pytest.raises(OutageError, match=f"goes on after step {reached}"):
        small.train(config)
    assert latest_step(small.work / "checkpoints") == reached
    assert find_processes(mark, folder) == [], "what the killed stage had started is gone"

    monkeypatch.delenv(FAULT)
    counts = small.train(config)

    assert (counts.steps, counts.rows, counts.hard_rows, counts.reused) == (6, 32, 8, 0)
    log = (small.out / "log" / "train.log").read_text()
    assert "Resuming from" in log and f"setting global step to {reached}" in log
    assert "create worker group dict_keys(['critic'])" in log, "the critic has a process of its own"
    trained_as_told(small, reached)
    assert (weights(small.out / "model") != weights(small.sft_model)) == (counts.best_step > 0)
    assert small.train(config).reused == 1, "the same training is not done again"


def kill_after_a_checkpoint(small: World) -> tuple[str, str]:
    """The mark and the folder of the training that was killed in its third step, whose reward pauses."""
    words = [
        str(path) for path in (small.sft_model, small.rows, small.out / "model", small.out / "log", small.reward)
    ]
    code = CHILD.format(root=str(ROOT), url=NOWHERE, config=WHOLE)
    dev, collection = 8, 16
    paused = {FAULT: f"pause:{dev + 2 * collection + dev}"}
    as_an_operator = {name: value for name, value in os.environ.items() if name != FORKS_VARIABLE}
    child = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.DEVNULL, env={**as_an_operator, **paused}
    )
    until = time.monotonic() + 900  # two busy cores take their time
    while time.monotonic() < until and not any(map(latest_step, (small.out / "scratch").glob("ppo/*/checkpoints"))):
        time.sleep(0.1)
    mark = (small.work / "running").read_text()
    folder = str(temporary_folder(mark))
    child.send_signal(signal.SIGKILL)
    child.wait()
    return mark, folder


def trained_as_told(small: World, killed_at: int) -> None:
    steps = small.steps()
    assert [step["step"] for step in steps] == [0, 1, 2, 3, 4, 5, 6]
    expected = "avg_reward win_rate policy_loss value_loss clip_fraction kl entropy length train_gold copy_rate"
    # verl may have had no time to log the step in which it was killed.
    known = [step for step in steps[1:] if step["step"] != killed_at]
    assert all(name in step for step in known for name in expected.split())
    for line in (small.work / "verl.jsonl").read_bytes().splitlines():
        data = orjson.loads(line)["data"]
        if "critic/score/mean" in data:  # also in a step that ended with a test on dev
            assert data["reward/avg_reward"] == pytest.approx(data["critic/score/mean"], abs=1e-5)
    assert [step["step"] for step in steps if "gold_dev" in step] == [0, 2, 4, 6]
    assert read_card(small.out / "model").stage == "ppo"
    assert Student.load(small.out / "model").write([validated(1, "dev")])[0].text
    assert list((small.out / "log" / "tensorboard").glob("events*"))
    assert list((small.out / "log" / "wandb").glob("offline-run-*/*.wandb"))
    assert "gold on dev" in (small.out / "log" / "curve.svg").read_text()


def weights(folder: Path) -> list[float]:
    from safetensors.torch import load_file

    return [float(tensor.double().sum()) for _, tensor in sorted(load_file(folder / "model.safetensors").items())]


LORA = {"rank": 4, "alpha": 16}


def small_critic(small: World) -> Path:
    """A model with the SFT model's tokenizer and fewer layers, as Qwen3-1.7B is to Qwen3-32B."""
    from components.training.base.pretrain import new_model

    folder, tokenizer = small.out / "weights" / "critic", load_tokenizer(small.sft_model)
    new_model(tokenizer, SHAPE.model_copy(update={"hidden": 8, "layers": 1}), seed=2).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_lora_with_kl_and_a_critic_is_served_as_it_was_trained(small: World, forked_verl: None) -> None:
    critic = small_critic(small)
    small.train(laptop(steps=1, lora=LORA, kl=0.01, accumulation=2, critic_model=str(critic)))

    import torch
    from peft import PeftModel

    actor = small.work / "best" / "actor"
    held = read_weights(actor)
    assert held and all("lora_" in name for name in held), "checkpoints hold the adapter alone"
    assert lora_scale(actor) == 4.0
    card = read_card(small.out / "model")
    export_checkpoint(actor, small.sft_model, small.out / "trained", card)  # the stage may hand on the SFT model
    merged = Student.load(small.out / "trained").model
    base = Student.load(small.sft_model).model
    adapted = PeftModel.from_pretrained(base, small.out / "trained" / "adapter").eval()
    ids = torch.arange(3, 30).unsqueeze(0)
    with torch.inference_mode():
        expected = adapted(input_ids=ids).logits
        assert (merged(input_ids=ids).logits - expected).abs().max() < 1e-4
        with adapted.disable_adapter():
            untrained = adapted(input_ids=ids).logits
    assert (expected - untrained).abs().max() > 1e-4, "the adapter has learned something"
    assert card.parents["critic_model"] == digest(critic)


def watched(*golds: float, stopped: str = "", stalled: bool = False) -> Any:
    """The monitor of a training with these scores on dev, the first before any step."""
    trained = {"avg_reward": 0.1, "win_rate": 0.2}
    steps = {at: {"step": at, "gold_dev": gold, **(trained if at else {})} for at, gold in enumerate(golds)}
    alarm = SimpleNamespace(name=stopped, message="") if stopped else None
    return SimpleNamespace(steps=steps, stopped=alarm, stalled=stalled, outage=None)


@pytest.mark.slow
def test_a_training_whose_checkpoints_are_all_worse_hands_on_the_sft_model(
    small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "_train", lambda *args: watched(0.75, 0.5, 0.625))

    counts = small.train(laptop())

    model, card = small.out / "model", read_card(small.out / "model")
    assert (counts.best_step, counts.dev_before, counts.dev_after, counts.reused) == (0, 0.75, 0.75, 0)
    assert sha256_file(model / "model.safetensors") == sha256_file(small.sft_model / "model.safetensors")
    assert (card.stage, card.parents["sft_model"]) == ("ppo", digest(small.sft_model))
    assert small.train(laptop())._replace(reused=0) == counts


@pytest.mark.parametrize(
    ("golds", "result"),
    [
        ((0.75, 0.5, 0.625), "the SFT model, which no checkpoint reaches on dev,"),
        ((0.75, 1.0), "the checkpoint of step 1"),
    ],
)
def test_a_training_that_is_stopped_names_its_result(
    golds: tuple[float, ...], result: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "step.txt").write_text("1")

    for stopped, why in (("kl", "kl"), ("", "no better on dev, ppo.patience")):
        training = watched(*golds, stopped=stopped, stalled=not stopped)
        stage._explain(training, Outcome(-15), tmp_path, tmp_path / "train.log")

        assert capsys.readouterr().out == f"[ppo] stopped ({why}); {result} becomes the model\n"


def test_a_training_that_fails_is_not_taken_for_one_that_stopped_early(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="it was told to stop"):
        stage._explain(watched(0.75, 1.0), Outcome(-15), tmp_path, tmp_path / "train.log")


@pytest.mark.slow
def test_grpo_has_no_critic_and_a_constant_reward_is_an_error_that_says_so(
    small: World, forked_verl: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FAULT, "constant")

    with pytest.raises(TrainingError, match=r"constant-reward.*of step \d+, is kept"):
        small.train(laptop(steps=50, validations=50, keep=50, advantage="grpo", rollouts=4))

    steps = [step for step in small.steps(small.work / "log") if step["step"]]
    assert steps and all("policy_loss" in step and "value_loss" not in step for step in steps)


def test_a_checkpoint_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "fsdp_config.json").write_text('{"world_size": 1}')
    (tmp_path / "model_world_size_1_rank_0.pt").write_bytes(b"half")

    with pytest.raises(TrainingError, match="cannot be read"):
        read_weights(tmp_path)


def test_a_checkpoint_that_verl_has_deleted_says_which_setting_keeps_more(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"of step 4.*Raise ppo\.keep"):
        keep_best(tmp_path, 4, tmp_path / "best")
