"""SFT at a training file's size on this machine's GPU, by the stage itself: ms-swift, its memory and its seconds.

    $(python -m pipelines.execute.environments sft) -m tests.gpu.sft OUT [--training one-gpu-24]

Weights are random. The last line is JSON.
"""

import os
from pathlib import Path
from typing import Any

import orjson

from components.training.sft.config import SftConfig
from components.training.sft.fit import card_phases
from components.training.sft.stage import sft
from qinglan.rewriter.card import RewriterCard, write_card
from qinglan.sizing.shape import shape_of
from tests.gpu.training_files import HISTORY, log_folder, main, measured, read_training_file
from tests.gpu.wide_models import settings, write_folder
from tests.models.training_rows import chat, write_chats

ROWS = {"train": 64, "dev": 16}


def train(out: Path, training: str) -> dict[str, Any]:
    os.environ["QINGLAN_SCRATCH"] = str(out / "scratch")
    values = read_training_file(training)
    name = values["base"]["model"]
    base, rows, config = write_folder(out / "base", name), write_rows(out / "chats"), sft_config(values)
    write_card(base, RewriterCard(stage="base"))
    figures = measured(
        lambda: sft(base, rows, out / "model", out / "log", config),
        card_phases(config, shape_of(settings(name), name)),
        out / "card.csv",
    )
    names = ("logging.jsonl", "metrics.jsonl")  # the first one's folder goes when the training has ended
    logs = [path.read_bytes().splitlines() for name in names for path in log_folder(out, "sft").rglob(name)]
    return {"training": training, **figures, "steps": [orjson.loads(line) for lines in logs for line in lines]}


def sft_config(values: dict[str, Any]) -> SftConfig:
    """The file's settings, for one pass over few rows."""
    return SftConfig.parse(values["sft"] | {"epochs": 1, "log_every": 1, "trackers": []}, "the training file")


def write_rows(folder: Path) -> Path:
    folder.mkdir()
    for split, count in ROWS.items():
        rows = [chat(number) for number in range(count)]
        for row in rows:
            row["messages"][1]["content"] = f"历史摘要: {HISTORY}\n{row['messages'][1]['content']}"
        write_chats(folder / f"{split}.jsonl", rows)
    return folder


if __name__ == "__main__":
    main("sft", __doc__, train)
