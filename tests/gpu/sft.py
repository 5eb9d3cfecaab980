"""SFT of a training file's size on this machine's GPU, by the stage itself: ms-swift, memory and seconds beside `fit`.

    $(python -m pipelines.environments sft) -m tests.gpu.sft OUT [--training one-gpu-24] [--rows 64]

Weights are random, so the stage's last check, that the model ends its answers, refuses it: that is said, not failed.
The last line is JSON.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import orjson
import yaml

from components.training.sft import fit
from components.training.sft.config import SftConfig
from components.training.sft.stage import sft
from qinglan.rewriter.card import RewriterCard, write_card
from qinglan.sizing.shape import shape_of
from qinglan.terminal import say_json
from tests.gpu.card_memory import CardMemory
from tests.gpu.wheels import ROOT
from tests.gpu.wide_models import settings, write_folder
from tests.tiny_rewriter import SYSTEM
from tests.training_rows import chat, write_chats

GIB = 1024**3
TRAINING = ROOT / "pipelines" / "configs" / "training"
HISTORY = "用户正在了解虾青素软胶囊，问过每日服用频次、饭前还是饭后、老人能不能吃。" * 3


def train(out: Path, training: str, rows: int) -> dict[str, Any]:
    os.environ["QINGLAN_SCRATCH"] = str(out / "scratch")
    values = yaml.safe_load((TRAINING / f"{training}.yaml").read_text(encoding="utf-8"))
    name = values["base"]["model"]
    started = time.monotonic()
    base = write_folder(out / "base", name)
    write_card(base, RewriterCard(stage="base", system_prompts={}, max_new_tokens=150))
    written = time.monotonic() - started
    chats = out / "chats"
    chats.mkdir()
    for split, count in (("train", rows), ("dev", 16)):
        write_chats(chats / f"{split}.jsonl", [long_chat(number) for number in range(count)])
    config = SftConfig.parse(values["sft"] | {"epochs": 1, "log_every": 1, "trackers": []}, "test")
    started, error = time.monotonic(), ""
    with CardMemory() as memory:
        try:
            sft(base, chats, out / "model", out / "log", config)
        except Exception as failure:  # what was measured until then is worth the run
            error = f"{type(failure).__name__}: {failure}"
    seconds = time.monotonic() - started
    logged = [line for path in (out / "scratch" / "sft").glob("*/**/logging.jsonl") for line in path.read_bytes().splitlines()]
    said = {phase.name: phase.bytes / GIB for phase in fit.card_phases(config, shape_of(settings(name), "test"))}
    return {
        "training": training, "error": error[:600], "writing the model, seconds": written, "seconds": seconds,
        "peak of the card, GiB": memory.peak, "each second": list(memory.seconds.values()), "fit, GiB": said, "steps": [orjson.loads(line) for line in logged],
    }  # fmt: skip


def long_chat(number: int) -> dict[str, Any]:
    row = chat(number)
    row["messages"][1]["content"] = f"{HISTORY}{row['messages'][1]['content']}"
    row["messages"][0]["content"] = SYSTEM
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--training", default="one-gpu-24")
    parser.add_argument("--rows", type=int, default=64)
    options = parser.parse_args()
    say_json(train(options.out.resolve(), options.training, options.rows))


if __name__ == "__main__":
    main()
