"""The smallest training of a kind with every tracker, run by tests/rehearsal/trackers.py in its image's environment.

PYTHON -m tests.rehearsal.tracked_training ppo FOLDER GATEWAY_URL
"""

import sys
from pathlib import Path
from typing import get_args

from qinglan.live.trackers import Tracker

TRACKERS = get_args(Tracker)


def sft(folder: Path, gateway_url: str) -> None:
    """ms-swift, which hands its figures to transformers' callbacks."""
    from components.training.sft.config import SftConfig
    from components.training.sft.stage import sft as train
    from tests.models.tiny_rewriter import tiny_model
    from tests.models.training_rows import chats

    config = SftConfig(
        device="cpu", tuner="full", dtype="float32", epochs=8.0, batch=8, accumulation=1, learning_rate=2e-2,
        max_length=256, validations=2, patience=0, log_every=4, workers=0, max_new_tokens=24, trackers=TRACKERS,
    )  # fmt: skip
    base = tiny_model(folder / "base", stage="base")
    train(base, chats(folder / "chats"), folder / "model", folder / "log", config, gateway_url=gateway_url)


def ppo(folder: Path, gateway_url: str) -> None:
    """verl, with its own loggers."""
    from components.training.ppo.stage import ppo as train
    from tests.models.ppo_world import laptop, world

    sft_model, rows, reward = world(folder / "world")
    config = laptop(trackers=list(TRACKERS))
    train(sft_model, rows, folder / "model", folder / "log", gateway_url, config, reward)


def style(folder: Path, gateway_url: str) -> None:
    """transformers' Trainer in the stage's own process."""
    from components.data.style.config import PrepareStyleConfig
    from components.data.style.stage import prepare
    from components.training.base.config import BaseConfig, TinyConfig
    from components.training.base.stage import text_base
    from components.training.style.config import StyleConfig
    from components.training.style.stage import train_style
    from standins.samples.style import write_style_sample

    write_style_sample(folder / "data", 600, seed=7)
    prepare(folder / "data", folder / "rows", folder / "page.html", PrepareStyleConfig())
    tiny = TinyConfig(vocabulary=900, hidden=32, layers=2, heads=2, steps=30, batch=16)
    text_base(folder / "rows", folder / "base", BaseConfig(source="tiny", tiny=tiny))
    config = StyleConfig(
        device="cpu", max_length=256, epochs=2, learning_rate=4e-3, batch=16, eval_batch=64, patience=0,
        evaluations=2, trackers=TRACKERS,
    )  # fmt: skip
    train_style(folder / "base", folder / "rows", folder / "model", folder / "log", config, gateway_url)


TRAININGS = {"sft": sft, "ppo": ppo, "style": style}

if __name__ == "__main__":
    TRAININGS[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
