"""Steps of training: padded to each batch's longest, those of like length together, against padding to 512."""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from rich.table import Table

from benchmarks.style.material import Material, aside
from components.training.style import trainer as fitting
from components.training.style.base_model import open_base
from components.training.style.dataset import StyleDataset, collate, one_hot
from components.training.style.stage import weighted_loss
from components.training.style.trainer import Loss, Watch, fit
from qinglan.style.labels import read_mapping
from qinglan.style.predict import encode

STEPS = 12
ROUNDS = 2
WIDTH = 512
TARGET = 3.0
DEV = 8
"""Rows, so that its validations take no time; none of it is in the figures."""


class Training(NamedTuple):
    """Steps a second, medians of all rounds' steps."""

    product: float
    padded: float
    ratio: float
    batch: int
    mean_tokens: int


class Clocked:
    """A loss that notes when each training step asks for it."""

    def __init__(self, loss: Loss) -> None:
        self._loss, self.at = loss, list[float]()

    def __call__(self, logits: Any, targets: Any) -> Any:
        if logits.requires_grad:
            self.at.append(time.perf_counter())
        return self._loss(logits, targets)

    def steps(self) -> list[float]:
        """Seconds from step to step; the first is the trainer's warming up."""
        return [later - first for first, later in zip(self.at[1:], self.at[2:], strict=False)]


def measure(material: Material, folder: Path) -> Training:
    """The same trainer, model and rows; the collator differs, a few rounds in turn."""
    batch = material.config.style.batch
    rows = material.split("train")[: STEPS * batch]
    labels = read_mapping(material.rows)
    _, tokenizer = open_base(
        material.base, labels, [row.input for row in material.split("train")], material.config.style
    )
    ids = encode(tokenizer, [row.input for row in rows], WIDTH)
    examples = StyleDataset(ids, one_hot([labels.ids[row.label] for row in rows], len(labels.labels), 0.0))
    product: list[float] = []
    padded: list[float] = []
    for number in range(ROUNDS):
        product += _seconds(material, examples, folder / f"ours-{number}")
        with patch.object(fitting, "collate", widest):
            padded += _seconds(material, examples, folder / f"padded-{number}")
    fast, slow = (round(1 / statistics.median(side), 2) for side in (product, padded))
    return Training(fast, slow, round(fast / slow, 2), batch, round(statistics.mean(map(len, ids))))


def _seconds(material: Material, examples: StyleDataset, checkpoints: Path) -> list[float]:
    labels = read_mapping(material.rows)
    model, _ = open_base(material.base, labels, [row.input for row in material.split("train")], material.config.style)
    style = material.config.style.model_copy(update={"epochs": 1.0})
    dev = StyleDataset([examples[at]["input_ids"] for at in range(DEV)], examples.targets[:DEV])
    loss = Clocked(weighted_loss([0], len(labels.labels), weighted=False))
    with aside():
        fit(
            "style",
            model,
            model.config.pad_token_id,
            examples,
            dev,
            loss,
            style,
            checkpoints,
            Watch("benchmark", checkpoints),
        )
    return loss.steps()


def widest(features: Sequence[dict[str, Any]], pad_token_id: int) -> dict[str, Any]:
    """A batch padded as the plan pads a text."""
    import torch

    batch = collate(features, pad_token_id)
    more = (0, WIDTH - batch["input_ids"].shape[1])
    ids = torch.nn.functional.pad(batch["input_ids"], more, value=pad_token_id)
    return {**batch, "input_ids": ids, "attention_mask": torch.nn.functional.pad(batch["attention_mask"], more)}


def table(comparison: Training) -> Table:
    title = f"training, batches of {comparison.batch}, texts of {comparison.mean_tokens} tokens in the mean"
    out = Table("", "steps a second", "texts a second", title=title)
    for name, steps in (("to the batch's longest", comparison.product), ("to 512", comparison.padded)):
        out.add_row(name, f"{steps:.2f}", f"{steps * comparison.batch:,.0f}")
    return out
