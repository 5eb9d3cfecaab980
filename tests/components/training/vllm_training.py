"""Train with verl's own vLLM rollout, on CPUs as GPUs train: a whole run of the stage, killed once and resumed.

    PYTHON=$(python -m pipelines.execute.environments ppo --cpu)    # made from images/ppo/cpu.lock
    $PYTHON -m tests.components.training.vllm_training OUT [--devices 2] [--dtype bfloat16]
    $(python -m pipelines.execute.environments ppo) \
        -m tests.components.training.vllm_training OUT --gpu --dtype bfloat16

Its last line is JSON: for each test on dev how many of vLLM's answers are the checkpoint's in transformers (`equal`).
In bfloat16 a few may differ, where two tokens are nearly as likely.
"""

import argparse
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from components.training.base.config import TinyConfig
from components.training.ppo.checkpoints import actor_folder, read_weights
from components.training.ppo.config import PpoConfig
from components.training.ppo.export_model import export_checkpoint
from components.training.ppo.stage import ppo
from qinglan.errors import TrainingError
from qinglan.jobs import JobSpec, LocalRunner, Outcome
from qinglan.rewriter.card import read_card
from qinglan.rewriter.model import Student
from qinglan.terminal import say_json
from tests.models.ppo_world import FAULT, laptop, world, write_rows

NOWHERE = "http://127.0.0.1:9"
SHAPE = TinyConfig(vocabulary=600, hidden=64, layers=2, heads=2, spread=0.2)
CRITIC = TinyConfig(vocabulary=600, hidden=32, layers=1, heads=1)
DEV, COLLECTION, STEPS, KILLED_AFTER = 24, 16, 3, 2
ANSWERS = Path("reward") / "answers.jsonl"


class CheckpointKeeper(LocalRunner):
    """Keeps a copy of the checkpoints, which the stage removes at its end; kills a training after so many answers."""

    def __init__(self, folder: Path, answers: int = 0) -> None:
        self.folder, self.answers = folder, answers
        self.killed = False

    def run(
        self, spec: JobSpec, log: Path,
        on_line: Callable[[str], None] = lambda line: None, stop: Callable[[], bool] = lambda: False,
    ) -> Outcome:  # fmt: skip
        saved, answers = log.parent.parent / "checkpoints", log.parent.parent / ANSWERS

        def enough() -> bool:
            if self.answers and answers.is_file() and len(answers.read_bytes().splitlines()) > self.answers:
                self.killed = True
            return stop() or self.killed

        outcome = super().run(spec, log, on_line, enough)
        if saved.is_dir():
            shutil.copytree(saved, self.folder, dirs_exist_ok=True)
        return outcome


def train(out: Path, devices: int, dtype: str, gpu: bool = False) -> dict[str, Any]:
    os.environ["QINGLAN_SCRATCH"] = str(out / "scratch")
    sft_model, rows, reward = world(out / "world", SHAPE)
    untied(sft_model)
    write_rows(rows, dev=DEV)
    config = settings(critic(out / "critic", sft_model), devices, dtype, gpu)

    def attempt(keeper: CheckpointKeeper) -> None:
        ppo(sft_model, rows, out / "model", out / "log", NOWHERE, config, reward, keeper)

    before = DEV * (KILLED_AFTER + 1) + COLLECTION * KILLED_AFTER
    os.environ[FAULT] = f"pause:{before}"  # in the next step, whose first answer is written and not rewarded
    killed = failure_of_killed(attempt, CheckpointKeeper(out / "checkpoints", before))
    del os.environ[FAULT]
    attempt(CheckpointKeeper(out / "checkpoints"))
    [work] = (out / "scratch" / "ppo").iterdir()
    return {"killed": killed, "work": str(work), **compare(out, sft_model, work)}


def failure_of_killed(attempt: Callable[[CheckpointKeeper], None], keeper: CheckpointKeeper) -> str:
    """The error of the training that the keeper kills; one that fails by itself before that is raised."""
    try:
        attempt(keeper)
    except TrainingError as error:
        if not keeper.killed:
            raise
        return str(error)
    return ""


def settings(critic_model: Path, devices: int, dtype: str, gpu: bool) -> PpoConfig:
    device = {"device": "cuda"} if gpu else {"device": "cpu", "plugin": "standins.verl_cpu.vllm_device"}
    hardware = {
        **device, "per_node": devices, "tensor_parallel": devices, "dtype": dtype, "reward_workers": 1,
        "rollout_memory": 0.3,
    }  # fmt: skip
    return laptop(
        steps=STEPS, validations=STEPS, keep=9, dev_rows=DEV, collection=COLLECTION, batch=COLLECTION, accumulation=2,
        temperature=0.7, actor_learning_rate=5e-3, lora={"rank": 8, "alpha": 16}, critic_model=str(critic_model),
        hardware=hardware,
    )  # fmt: skip


def untied(folder: Path) -> None:
    """Give the model an output layer of its own, as Qwen3-32B has: verl loads such a model in another way."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    model.save_pretrained(folder)


def critic(folder: Path, sft_model: Path) -> Path:
    """A smaller model with the same tokenizer."""
    from transformers import AutoTokenizer

    from components.training.base.pretrain import new_model

    tokenizer = AutoTokenizer.from_pretrained(sft_model)
    new_model(tokenizer, CRITIC, seed=3).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def compare(out: Path, sft_model: Path, work: Path) -> dict[str, Any]:
    """For each test on dev, in order: how many of vLLM's answers are those of the checkpoint, exported and loaded."""
    import pyarrow.parquet

    dev = pyarrow.parquet.read_table(work / "dev.parquet").to_pylist()
    messages = [row["prompt"] for row in dev]
    models = {0: sft_model} | {step: exported(out, sft_model, step) for step in range(1, STEPS + 1)}
    answers = {step: texts(model, messages) for step, model in models.items()}
    vllm = dev_answers(work / ANSWERS, [row["extra_info"]["id"] for row in dev])
    # The resumed training begins with a test, too.
    tested = [*range(KILLED_AFTER + 1), *range(KILLED_AFTER, STEPS + 1)]
    adapters = {step: read_weights(actor_folder(out / "checkpoints", step), only="lora_") for step in models if step}
    return {
        "tested": tested,
        "equal": [
            sum(map(str.__eq__, vllm_answers, answers[step])) for step, vllm_answers in zip(tested, vllm, strict=True)
        ],
        "unchanged": [sum(map(str.__eq__, answers[0], answers[step])) for step in tested],
        "adapter_dtypes": sorted({str(tensor.dtype) for weights in adapters.values() for tensor in weights.values()}),
        "adapter_norms": [norm(adapters[step]) for step in sorted(adapters)],
        "merged_equals_adapter": logits_difference(sft_model, out / "model"),
        "released": sum(map(str.__eq__, texts(out / "model", messages), answers[model_step(out / "log")])),
    }


def exported(out: Path, sft_model: Path, step: int) -> Path:
    folder = out / "exported" / str(step)
    card = read_card(sft_model).model_copy(update={"stage": "ppo", "parents": {"sft_model": "0" * 64}})
    export_checkpoint(actor_folder(out / "checkpoints", step), sft_model, folder, card)
    return folder


def texts(model: Path, messages: list[Any]) -> list[str]:
    """Greedy answers with the weights rounded to bfloat16, since verl rounds merged weights on their way to vLLM."""
    import torch

    student = Student.load(model)
    student.model.to(torch.bfloat16).to(torch.float32)
    return [answer.text for answer in student.write_messages(messages)]


def dev_answers(path: Path, ids: list[str]) -> list[list[str]]:
    """vLLM's answers on dev, test by test; within a test they are stored as they end."""
    by_id: dict[str, list[str]] = {name: [] for name in ids}
    for name, text in map(orjson.loads, path.read_bytes().splitlines()):
        if name in by_id:
            by_id[name].append(text.strip())
    return [list(test) for test in zip(*by_id.values(), strict=True)]


def norm(adapter: dict[str, Any]) -> float:
    return float(sum(float(tensor.double().square().sum()) for name, tensor in adapter.items() if "lora_B" in name))


def model_step(log: Path) -> int:
    from components.training.ppo import training_monitor

    return training_monitor.model_step(training_monitor.read_steps(log / "metrics.jsonl"))


def logits_difference(sft_model: Path, model: Path) -> float:
    """Largest difference between the merged model and the SFT model with the released adapter."""
    import torch
    from peft import PeftModel

    ids = torch.arange(3, 30).unsqueeze(0)
    adapted = PeftModel.from_pretrained(Student.load(sft_model).model, model / "adapter").eval()
    with torch.inference_mode():
        return float((adapted(input_ids=ids).logits - Student.load(model).model(input_ids=ids).logits).abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--devices", type=int, default=1, help="processes that train, and share vLLM's model")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"], help="of the base and of vLLM")
    parser.add_argument(
        "--gpu", action="store_true", help="on this machine's GPUs, with the packages of the ppo image"
    )
    options = parser.parse_args()
    say_json(train(options.out.resolve(), options.devices, options.dtype, options.gpu))


if __name__ == "__main__":
    main()
