"""PPO at a training file's size on this machine's GPU, by the stage itself: verl, vLLM, their memory and seconds.

    $(python -m pipelines.execute.environments ppo) -m tests.gpu.ppo OUT [--training one-gpu-24]

Weights are random, and rewards are for short answers; two steps. The last line is JSON. OUT/card.csv has the card's
memory five times a second, of a check that was killed too.
"""

import os
from pathlib import Path
from typing import Any

import orjson

from components.training.ppo.config import PpoConfig
from components.training.ppo.fit import card_phases
from components.training.ppo.stage import ppo
from qinglan.rewriter.card import RewriterCard, write_card
from qinglan.rows.prompt_parquet import ParquetRows
from qinglan.rows.rows import Split
from qinglan.rows.training_rows import ppo_row
from qinglan.sizing.shape import shape_of
from tests.gpu.training_files import HISTORY, log_folder, main, measured, read_training_file
from tests.gpu.wide_models import settings, write_folder
from tests.models.ppo_world import REWARD, validated
from tests.models.tiny_rewriter import SYSTEM

NOWHERE = "http://127.0.0.1:9"
STEPS, SAMPLES, DEV = 2, 32, 16
ROLLOUT_MEMORY = 0.25
"""Share of a card of 80 GB: what the rollout has of one of 24."""

FIGURES = ("perf/", "timing_s/", "training/rollout", "response_length/mean", "prompt_length/max")


def train(out: Path, training: str) -> dict[str, Any]:
    import torch

    os.environ["QINGLAN_SCRATCH"] = str(out / "scratch")
    values = read_training_file(training)
    names = values["base"]["model"], values["ppo"]["critic_model"]
    model, critic = write_folder(out / "sft_model", names[0]), write_folder(out / "critic", names[1])
    write_card(model, RewriterCard(stage="sft", system_prompts={"fivedoctors": SYSTEM}, max_new_tokens=150))
    reward = out / "quick.py"
    reward.write_text(REWARD, encoding="utf-8")
    rows, config = write_rows(out / "rows"), ppo_config(values, critic)
    shapes = [shape_of(settings(name), name) for name in names]
    usable = torch.cuda.get_device_properties(0).total_memory
    figures = measured(
        lambda: ppo(model, rows, out / "model", out / "log", NOWHERE, config, reward),
        card_phases(config, shapes[0], shapes[1], usable),
        out / "card.csv",
    )
    return {"training": training, **figures, "steps": read_figures(log_folder(out, "ppo") / "verl.jsonl")}


def ppo_config(values: dict[str, Any], critic: Path) -> PpoConfig:
    """The file's settings, with few samples and steps; a part of a batch has as many rows as the file's."""
    accumulation = SAMPLES // PpoConfig.parse(values["ppo"], "the training file").micro_batch
    few = {
        "collection": SAMPLES, "batch": SAMPLES, "accumulation": accumulation, "ppo_epochs": 1, "steps": STEPS,
        "validations": 1, "keep": 1, "dev_rows": DEV, "critic_model": str(critic), "trackers": [],
    }  # fmt: skip
    hardware = values["ppo"]["hardware"] | {"reward_workers": 1, "rollout_memory": ROLLOUT_MEMORY}
    return PpoConfig.parse(values["ppo"] | few | {"hardware": hardware}, "the training file")


def write_rows(folder: Path) -> Path:
    splits: dict[Split, int] = {"train": SAMPLES * STEPS, "dev": DEV}
    for split, count in splits.items():
        with ParquetRows(folder / f"{split}.parquet") as file:
            for number in range(count):
                rank = None if split == "train" and number % 2 else 1
                file.add(ppo_row(validated(number, split, rank, history_summary=HISTORY), split, SYSTEM))
    return folder


def read_figures(path: Path) -> list[dict[str, float]]:
    rows = [orjson.loads(line)["data"] for line in path.read_bytes().splitlines()] if path.is_file() else []
    return [{name: value for name, value in row.items() if name.startswith(FIGURES)} for row in rows]


if __name__ == "__main__":
    main("ppo", __doc__, train)
