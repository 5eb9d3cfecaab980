"""Shared parts of the checks of whole stages: a file of pipelines/configs/training, and a stage that is measured."""

import argparse
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from qinglan.errors import QinglanError
from qinglan.sizing.ledger import Phase
from qinglan.terminal import say_json
from tests.gpu.__main__ import NO_GPU
from tests.gpu.card_memory import CardMemory
from tests.gpu.wheels import ROOT

GIB = 1024**3
HISTORY = "用户正在了解虾青素软胶囊，问过每日服用频次、饭前还是饭后、老人能不能吃。" * 3
"""Some two hundred tokens, as a row of the plan has."""


def new_folder_on_a_gpu(out: Path) -> None:
    """The folder of results, or words for whoever has no GPU or has named one that is there already."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit(f"This check {NO_GPU}.")
    if out.exists():
        raise SystemExit(f"{out}: is there already. Name a new folder.")
    out.mkdir(parents=True)


def read_training_file(name: str) -> dict[str, Any]:
    path = ROOT / "pipelines" / "configs" / "training" / f"{name}.yaml"
    values: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return values


def measured(stage: Callable[[], object], phases: Iterable[Phase], readings: Path) -> dict[str, Any]:
    """Seconds and memory of a stage, beside the bytes that `fit` reckons.

    A refusal at its end is part of the result: weights that learned nothing never end an answer.
    """
    started, refusal = time.monotonic(), ""
    with CardMemory(readings) as memory:
        try:
            stage()
        except QinglanError as error:
            refusal = str(error)
    return {
        "refusal": refusal, "seconds": round(time.monotonic() - started, 1), "peak of the card, GiB": memory.peak,
        "by fit, GiB": {phase.name: round(phase.bytes / GIB, 2) for phase in phases},
    }  # fmt: skip


def log_folder(out: Path, stage: str) -> Path:
    """The stage's folder in the scratch space that `out` holds."""
    [folder] = (out / "scratch" / stage).iterdir()
    return folder


def main(check: str, description: str | None, train: Callable[[Path, str], dict[str, Any]]) -> None:
    """The command line of a stage's check."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.gpu.{check}", description=description)
    parser.add_argument("out", type=Path)
    parser.add_argument("--training", default="one-gpu-24", help="a file of pipelines/configs/training for one GPU")
    options = parser.parse_args()
    new_folder_on_a_gpu(options.out)
    say_json(train(options.out.resolve(), options.training))
