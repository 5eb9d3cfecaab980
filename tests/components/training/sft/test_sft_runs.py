"""SFT as it really runs: ms-swift on a CPU, killed and resumed, on two nodes, LoRA merged, with the serving prompt.

One whole training is what the killed one and the two nodes are held against.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import psutil
import pytest

from components.training.sft.config import SftConfig
from components.training.sft.stage import LOCAL_RUNNER, SftCounts, sft
from components.training.sft.steps import training_steps
from qinglan.files.digests import digest
from qinglan.files.scratch import SCRATCH_VARIABLE, last_checkpoint
from qinglan.jobs import Runner
from qinglan.prompts import Message
from qinglan.rewriter.card import read_card
from qinglan.rewriter.model import Student, load_tokenizer, render_prompt
from tests.components.training.swift_subprocess import encoded
from tests.components.training.verl_subprocess import ask
from tests.models.qwen3 import CHAT_TEMPLATE
from tests.models.tiny_rewriter import tiny_model
from tests.models.training_rows import chat, chats
from tests.processes.forked_runs import SWIFT, forks_variables, swift_sockets
from tests.qinglan.jobs.rendered_env import LoopbackRunner
from tests.run_forks.sitecustomize import FORKS_VARIABLE

pytestmark = pytest.mark.slow

SMALL = SftConfig(
    device="cpu", tuner="full", dtype="float32", epochs=8.0, batch=8,
    eval_batch=16, accumulation=1, learning_rate=2e-2,
    max_length=256, validations=4, patience=0, log_every=4, workers=0,
    max_new_tokens=24,
)  # fmt: skip
TWO = SMALL.model_copy(update={"nodes": 2, "batch": 4})
"""The same rows at each step: half of them on each node."""


class Inputs(NamedTuple):
    base: Path
    chats: Path


class Whole(NamedTuple):
    """A training from its beginning to its end."""

    out: Path
    scratch: Path
    counts: SftCounts


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    folder = tmp_path_factory.mktemp("inputs")
    return Inputs(tiny_model(folder / "base", stage="base"), chats(folder / "chats"))


@pytest.fixture(autouse=True)
def _own_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_scratch(monkeypatch, tmp_path / "scratch")


def use_scratch(patch: pytest.MonkeyPatch, scratch: Path) -> None:
    """Train there, in forks of a process that has imported ms-swift: six seconds of a core less for each process.

    The training that is killed is started as an operator starts it.
    """
    patch.setenv(SCRATCH_VARIABLE, str(scratch))
    for name, value in forks_variables(swift_sockets()).items():
        patch.setenv(name, value)


@pytest.fixture(scope="module")
def whole(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        use_scratch(patch, folder / "scratch")
        return Whole(folder, folder / "scratch", train(inputs, folder, SMALL, LOCAL_RUNNER))


def train(inputs: Inputs, out: Path, config: SftConfig, runner: Runner) -> SftCounts:
    return sft(*inputs, out / "model", out / "log", config, runner)


def metrics(out: Path) -> list[dict[str, float]]:
    return [orjson.loads(line) for line in (out / "log" / "metrics.jsonl").read_bytes().splitlines()]


def losses(out: Path, *names: str) -> list[float]:
    return [row[name] for row in metrics(out) for name in names if name in row]


def test_sft_learns_is_evaluated_and_is_not_repeated(
    inputs: Inputs, whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SCRATCH_VARIABLE, str(whole.scratch))
    again = train(inputs, tmp_path, SMALL, LOCAL_RUNNER)

    first, *_, last = losses(whole.out, "eval_loss")
    assert last < first / 2
    assert (whole.counts.rows, whole.counts.steps, whole.counts.reused) == (48, 48, 0)
    assert training_steps(SMALL, 48) == 48
    assert [row["step"] for row in metrics(whole.out) if "eval_loss" in row] == [12, 24, 36, 48]
    assert again == whole.counts._replace(reused=1)
    assert digest(whole.out / "model") == digest(tmp_path / "model")
    assert read_card(tmp_path / "model").parents["base_model"] == digest(inputs.base)
    assert "<svg" in (tmp_path / "log" / "curve.svg").read_text()
    assert list((tmp_path / "log" / "tensorboard").glob("events.out.tfevents*"))
    assert Student.load(tmp_path / "model").write_messages([chat(1)["messages"][:2]])[0].text


TRAIN = """
import sys
from pathlib import Path
from components.training.sft.config import SftConfig
from components.training.sft.stage import sft

base, chats, out, config = sys.argv[1:]
sft(Path(base), Path(chats), Path(out) / "model", Path(out) / "log", SftConfig.model_validate_json(config))
"""


def runs(process: psutil.Process) -> bool:
    """A zombie does not: it has ended, and the init process, its parent now, has not read its exit code yet."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_training_that_is_killed_goes_on_and_ends_at_the_same_loss(
    inputs: Inputs, whole: Whole, tmp_path: Path
) -> None:
    words = [*inputs, tmp_path, SMALL.model_dump_json()]
    as_an_operator = {name: value for name, value in os.environ.items() if name != FORKS_VARIABLE}
    command = [sys.executable, "-c", TRAIN, *map(str, words)]
    child = psutil.Popen(command, stdout=subprocess.DEVNULL, env=as_an_operator)
    wait_for(lambda: [path for path in tmp_path.glob("scratch/sft/*/checkpoints") if last_checkpoint(path)])
    orphans = child.children(recursive=True)
    child.kill()
    child.wait()
    assert not (tmp_path / "model").exists()

    resumed = train(inputs, tmp_path, SMALL, LOCAL_RUNNER)

    assert orphans and not any(map(runs, orphans)), "what it left behind was ended first"
    steps = [row["step"] for row in metrics(tmp_path)]
    log = (tmp_path / "log" / "train.log").read_text(errors="replace")
    assert "checkpoint-" in re.findall("resume_from_checkpoint=(.*)", log)[-1], "it does not begin anew"
    assert max(steps) == 48
    assert resumed.eval_loss == pytest.approx(whole.counts.eval_loss, rel=0.05)


def test_two_nodes_learn_what_one_process_learns_from_the_same_rows(
    inputs: Inputs, whole: Whole, tmp_path: Path
) -> None:
    """Real processes with the environments that the real operator rendered, joined over gloo."""
    two = train(inputs, tmp_path, TWO, LoopbackRunner(tmp_path))

    expected = losses(whole.out, "loss", "eval_loss")
    assert len(expected) == 17
    assert losses(tmp_path, "loss", "eval_loss") == pytest.approx(expected, rel=1e-4)
    assert (two.steps, two.rows) == (48, 48)
    assert list((tmp_path / "scratch" / "inputs").glob("*/base")), "a job's pods cannot see the step's own files"


def test_lora_is_trained_and_merged_and_the_two_say_the_same(inputs: Inputs, tmp_path: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    train(inputs, tmp_path, SMALL.model_copy(update={"tuner": "lora"}), LOCAL_RUNNER)

    model = tmp_path / "model"
    ids = torch.tensor(
        [load_tokenizer(model)(render_prompt(load_tokenizer(model), chat(3)["messages"][:2])).input_ids]
    )
    base_model = AutoModelForCausalLM.from_pretrained(inputs.base, dtype=torch.float32)
    before = base_model(ids).logits
    with_adapter = PeftModel.from_pretrained(base_model, model / "adapter").eval()(ids).logits
    merged = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)(ids).logits
    assert (merged - with_adapter).abs().max() < 1e-3
    assert (merged - before).abs().max() > 0.1


@pytest.mark.parametrize("template", ["chatml", "qwen3"])
def test_training_and_serving_see_the_same_prompt_to_the_byte(tmp_path: Path, template: str) -> None:
    """ms-swift renders for training, the tokenizer's own template for verl and serving."""
    base = tiny_model(tmp_path / "base", stage="base")
    if template == "qwen3":
        tokenizer = load_tokenizer(base)
        tokenizer.chat_template = CHAT_TEMPLATE
        tokenizer.save_pretrained(base)
    row: dict[str, Any] = {"messages": chat(5)["messages"]}
    prompt_messages: list[Message] = row["messages"][:2]

    [ids] = ask(encoded, str(base), template, row, environment=os.environ, libraries=SWIFT)

    served = load_tokenizer(base)
    prompt = served(render_prompt(served, prompt_messages), add_special_tokens=False).input_ids
    assert ids[: len(prompt)] == prompt
    answer = served.decode(ids[len(prompt) :])
    assert answer == row["messages"][2]["content"] + "<|im_end|>\n"


def wait_for(condition: Any, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
