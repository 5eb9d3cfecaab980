"""Inputs of PPO's tests: a tiny model that ends its sentences, rows as convert writes them, a reward."""

import os
from pathlib import Path
from typing import Any

from components.training.base.config import TinyConfig
from components.training.ppo.config import PpoConfig
from qinglan.rows.prompt_parquet import ParquetRows
from qinglan.rows.rows import Split, ValidatedRewrite
from qinglan.rows.training_rows import ppo_row
from tests.models import validated_rows
from tests.models.tiny_rewriter import SHAPE, SYSTEM, TEXTS

FAULT = "QUICK_REWARD_FAULT"
"""Environment variable that the reward below reads: nothing, `constant`, `outage:N` or `pause:N`, after N calls.

A training whose reward pauses gets no further, however long a busy test takes to kill it.
"""

REWARD = '''
"""Short answers pay: a model that babbles learns to stop."""

import json
import os
import time
from pathlib import Path

from qinglan.errors import OutageError
from qinglan.reward.outage import write_outage

NAMES = (
    "gold_teacher labelled unjudged top1 top1_teacher copied floor kept numbers judged judge_failed control_pair"
    " control_pair_failed part_judge"
)
calls = 0


async def compute_scores(samples, settings):
    return [score(settings=settings, **sample) for sample in samples]


async def compute_score(data_source, solution_str, ground_truth, extra_info, settings, **more):
    with (reward_folder(settings) / "answers.jsonl").open("a") as file:
        print(json.dumps([extra_info["id"], solution_str]), file=file)
    return score(data_source, solution_str, ground_truth, extra_info, settings)


def reward_folder(settings):
    folder = Path(json.loads(Path(settings).read_text())["folder"])
    folder.mkdir(exist_ok=True)
    return folder


def score(data_source, solution_str, ground_truth, extra_info, settings):
    global calls
    calls += 1
    folder = reward_folder(settings)
    fault, _, after = os.environ.get("QUICK_REWARD_FAULT", "").partition(":")
    if fault == "outage" and calls > int(after):
        write_outage(folder, OutageError("The RAG service gave no answer."), extra_info["id"])
        raise OutageError("The RAG service gave no answer.")
    if fault == "pause" and calls > int(after):
        time.sleep(3600)
    short = 1.0 - min(len(solution_str), 20) / 20
    score = 0.5 if fault == "constant" else short
    terms = {"score": score, "gold": float(short > 0.5), "gold_known": 1.0, "win": 1.0 if short > 0.5 else -1.0}
    return dict.fromkeys(NAMES.split(), 0.0) | terms | {"length": float(len(solution_str))}
'''


def laptop(**changes: Any) -> PpoConfig:
    """PPO as small as it gets."""
    hardware = {
        "device": "cpu", "plugin": "standins.verl_cpu", "per_node": 1, "tensor_parallel": 1, "reward_workers": 1,
    }  # fmt: skip
    values: dict[str, Any] = {
        "collection": 16, "batch": 16, "accumulation": 1, "ppo_epochs": 1, "steps": 2, "validations": 2, "gamma": 1.0,
        "temperature": 1.0, "top_p": 1.0, "max_new_tokens": 16, "max_prompt_tokens": 96, "actor_learning_rate": 1e-3,
        "critic_learning_rate": 1e-3, "dev_rows": 8, "lora": {"rank": 0}, "hardware": hardware, "trackers": [],
    }  # fmt: skip
    return PpoConfig.parse(values | changes, "test")


def validated(number: int, split: Split, gold_rank: int | None = 1, **changes: Any) -> ValidatedRewrite:
    result = validated_rows.RETRIEVAL.model_copy(update={"gold_rank": gold_rank})
    identity = {"id": f"{split}{number}", "conversation_id": f"{split}{number}", "question": f"一天吃几次{number}"}
    return validated_rows.validated(**identity, split=split, plain=result, rewritten=result, **changes)


def write_rows(folder: Path, train: int = 32, dev: int = 8, hard: int = 8) -> Path:
    with ParquetRows(folder / "train.parquet") as file:
        for number in range(train):
            file.add(ppo_row(validated(number, "train", None if number < hard else 1), "train", SYSTEM))
    with ParquetRows(folder / "dev.parquet") as file:
        for number in range(dev):
            file.add(ppo_row(validated(number, "dev"), "dev", SYSTEM))
    return folder


def student(folder: Path, seed: int = 1, shape: TinyConfig = SHAPE) -> Path:
    """A model that was shown for some steps how to answer: it ends, sometimes soon, sometimes late."""
    from components.training.base.config import BaseConfig
    from components.training.base.corpus import TrainingText
    from components.training.base.pretrain import new_model, pretrain
    from components.training.base.tokenizer import train_tokenizer
    from qinglan.prompts import student_messages
    from qinglan.rewriter.card import RewriterCard, write_card

    tokenizer: Any = train_tokenizer([*TEXTS, *["system user assistant 0 1 2 3 4 5 6 7 8 9"] * 20], shape)
    model = new_model(tokenizer, shape, seed)
    answers = ("虾青素 每日服用频次", "虾青素", "虾青素软胶囊 每日服用频次 虾青素 服用", "一天吃几次 虾青素软胶囊")
    texts = [
        TrainingText(tuple(student_messages(validated(at, "train"), SYSTEM)), answers[at % 4]) for at in range(64)
    ]
    tiny = shape.model_copy(update={"steps": 60, "batch": 16, "learning_rate": 1e-2})
    pretrain(model, tokenizer, texts, BaseConfig(source="tiny", tiny=tiny))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_card(folder, RewriterCard(stage="sft", system_prompts={"fivedoctors": SYSTEM}, max_new_tokens=16))
    return folder


def world(folder: Path, shape: TinyConfig = SHAPE) -> tuple[Path, Path, Path]:
    """SFT model, rows, reward function."""
    reward = folder / "reward" / "quick.py"
    reward.parent.mkdir(parents=True)
    reward.write_text(REWARD, encoding="utf-8")
    os.environ.pop(FAULT, None)
    return student(folder / "sft_model", shape=shape), write_rows(folder / "rows"), reward
