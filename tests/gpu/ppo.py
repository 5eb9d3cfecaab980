"""PPO of a training file's size on this machine's GPU, for a few steps: verl, vLLM, memory and seconds beside `fit`.

    $(python -m pipelines.environments ppo) -m tests.gpu.ppo OUT [--training one-gpu-24] [--steps 2]

Weights are random, rewards are for short answers, everything else is the stage's. The last line is JSON.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import orjson
import yaml

from components.training.ppo import fit
from components.training.ppo.config import PpoConfig
from components.training.ppo.stage import ppo
from qinglan.prompt_parquet import ParquetRows
from qinglan.rewriter.card import RewriterCard, write_card
from qinglan.sizing.shape import ModelShape, shape_of
from qinglan.terminal import say_json
from qinglan.training_rows import ppo_row
from tests.gpu.card_memory import CardMemory
from tests.gpu.wheels import ROOT
from tests.gpu.wide_models import settings, write_folder
from tests.ppo_world import REWARD, SYSTEM, validated

GIB = 1024**3
TRAINING = ROOT / "pipelines" / "configs" / "training"
NOWHERE = "http://127.0.0.1:9"
SAMPLES, DEV = 64, 32
HISTORY = "用户正在了解虾青素软胶囊，问过每日服用频次、饭前还是饭后、老人能不能吃。" * 3


def train(out: Path, training: str, steps: int, base: Path | None) -> dict[str, Any]:
    os.environ["QINGLAN_SCRATCH"] = str(out / "scratch")
    values = yaml.safe_load((TRAINING / f"{training}.yaml").read_text(encoding="utf-8"))
    name, critic = values["base"]["model"], values["ppo"]["critic_model"]
    started = time.monotonic()
    sft_model = base or write_folder(out / "sft_model", name)
    write_card(sft_model, RewriterCard(stage="sft", system_prompts={"fivedoctors": SYSTEM}, max_new_tokens=150))
    write_folder(out / "critic", critic)
    written = time.monotonic() - started
    config = small(values["ppo"], steps, out / "critic")
    reward = out / "reward" / "quick.py"
    reward.parent.mkdir()
    reward.write_text(REWARD, encoding="utf-8")
    started, error = time.monotonic(), ""
    with CardMemory() as memory:
        try:
            ppo(sft_model, rows(out / "rows", steps), out / "model", out / "log", NOWHERE, config, reward)
        except Exception as failure:  # what was measured until then is worth the run
            error = f"{type(failure).__name__}: {failure}"
    seconds = time.monotonic() - started
    [work] = (out / "scratch" / "ppo").iterdir()
    actor, value = (shape_of(settings(model), "test") for model in (name, critic))
    return {
        "training": training, "error": error[:600], "writing models, seconds": written, "seconds": seconds,
        "peak of the card, GiB": memory.peak, "each second": list(memory.seconds.values()), "fit, GiB": said(config, actor, value), "steps": figures(work),
    }  # fmt: skip


def small(values: dict[str, Any], steps: int, critic: Path) -> PpoConfig:
    """The file's settings with few samples, and of a large card no more than the rollout would have of a small one."""
    few = {
        "collection": SAMPLES, "batch": SAMPLES, "ppo_epochs": 1, "steps": steps, "validations": 1, "keep": 1,
        "dev_rows": DEV, "critic_model": str(critic), "trackers": [],
    }  # fmt: skip
    hardware = values["hardware"] | {"reward_workers": 1, "rollout_memory": 0.25}
    return PpoConfig.parse(values | few | {"hardware": hardware}, "test")


def rows(folder: Path, steps: int) -> Path:
    for split, count in (("train", SAMPLES * steps), ("dev", DEV)):
        with ParquetRows(folder / f"{split}.parquet") as file:
            for number in range(count):
                rank = None if split == "train" and number < count / 2 else 1
                file.add(ppo_row(validated(number, split, rank, history_summary=HISTORY), split, SYSTEM))
    return folder


def said(config: PpoConfig, actor: ModelShape, critic: ModelShape) -> dict[str, float]:
    usable = 79.1 * GIB
    return {phase.name: phase.bytes / GIB for phase in fit.card_phases(config, actor, critic, usable)}


def figures(work: Path) -> list[dict[str, float]]:
    path = work / "verl.jsonl"
    lines = path.read_bytes().splitlines() if path.is_file() else []
    wanted = ("perf/", "timing_s/", "training/rollout", "response_length/mean", "prompt_length/max", "actor/grad")
    return [
        {name: value for name, value in orjson.loads(line)["data"].items() if name.startswith(wanted)}
        for line in lines
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--training", default="one-gpu-24")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--base", type=Path, help="folder with the model, else it is made")
    options = parser.parse_args()
    say_json(train(options.out.resolve(), options.training, options.steps, options.base))


if __name__ == "__main__":
    main()
