"""The style model: a classifier over the data's labels, trained by transformers' Trainer.

TRL's RewardTrainer takes two texts and one score, not five classes, so it is not used here. An interrupted training
is resumed from its last checkpoint; a finished one is reused.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from components.training.style.base_model import merged, open_base
from components.training.style.calibrate import divide_logits, fit_temperature
from components.training.style.config import StyleConfig
from components.training.style.cross_fit import Fold, cross_fit, make_folds
from components.training.style.dataset import LabelledText, StyleDataset, class_weights, labelled_texts, one_hot
from components.training.style.trainer import CURVES, Loss, Watch, fit
from qinglan.errors import DataError
from qinglan.files.files import atomic_folder, atomic_write, sha256_file
from qinglan.files.scratch import scratch_folder, source_digest
from qinglan.jobs.gpus import need_gpus
from qinglan.live.view import Part
from qinglan.models.base_reference import base_digest, weights_folder
from qinglan.pages.curves import CURVE_FILE, rows_curve
from qinglan.style.engines import TorchEngine
from qinglan.style.labels import MAPPING_FILE, Labels, write_mapping
from qinglan.style.model import StyleCard, StyleModel, write_card
from qinglan.style.predict import encode
from qinglan.style.rows import FOLDS_FILE, UNLABELLED_FILE, StyleRow, read_folds, read_split
from qinglan.terminal import say

DONE, FACTS, METRICS = "done", "facts.json", "metrics.jsonl"
SHOWN = 5
TITLE = "Style: loss and macro-F1 by step"


class StyleCounts(NamedTuple):
    rows: int
    dev_rows: int
    steps: int
    accuracy: float
    """Accuracy on dev at the best checkpoint; `macro_f1` is of the same checkpoint."""

    macro_f1: float
    temperature: float
    cut: int
    """Number of texts that reach max_length: they were cut, or are exactly as long."""

    reused: int
    """1 if the same training had been finished before and its result was reused, else 0."""


FIGURES = {
    "rows": "train, rows",
    "dev_rows": "dev, rows",
    "steps": "training steps",
    "accuracy": "accuracy on dev, %",
    "macro_f1": "macro F1 on dev, %",
    "temperature": "temperature of calibration",
    "cut": "texts that reach the limit",
    "reused": "finished by an earlier run, 1 or 0",
}
"""Words for the figures on KFP's page, by field."""


def train_style(
    base: Path, rows: Path, model: Path, log: Path, config: StyleConfig, gateway_url: str = ""
) -> StyleCounts:
    """Train and calibrate the model; write its folder, and the log with metrics and curve.

    `gateway_url`: address of the gateway that shows the training while it runs, or "".
    """
    if config.device == "cuda":
        need_gpus("style", 1)
    parents = {"base_model": base_digest(base), **files_digests(rows)}
    work = scratch_folder(
        "style", *parents.values(), config.model_dump_json(exclude={"trackers"}), source_digest(Path(__file__).parent)
    )
    reused = (work / DONE).is_dir()
    if not reused:
        with atomic_folder(work / DONE) as result:
            _make(weights_folder(base), rows, work / "checkpoints", result, config, parents, gateway_url)
        shutil.rmtree(work / "checkpoints", ignore_errors=True)
    for name, target in (("model", model), ("log", log)):
        with atomic_folder(target) as partial:
            shutil.copytree(work / DONE / name, partial, dirs_exist_ok=True)
    return StyleCounts(**orjson.loads((work / DONE / FACTS).read_bytes()), reused=int(reused))


def files_digests(rows: Path) -> dict[str, str]:
    """Return the digests of the files in a folder of rows that a training depends on."""
    named = {"train": "train.jsonl", "dev": "dev.jsonl", "labels": MAPPING_FILE}
    named |= {"texts": UNLABELLED_FILE, "folds": FOLDS_FILE}
    return {name: sha256_file(path) for name, file in named.items() if (path := rows / file).is_file()}


def _make(
    base: Path,
    rows: Path,
    checkpoints: Path,
    target: Path,
    config: StyleConfig,
    parents: dict[str, str],
    gateway_url: str,
) -> None:
    train, labels = read_split(rows, "train")
    dev, _ = read_split(rows, "dev")
    if not dev:
        raise DataError(f"{rows / 'dev.jsonl'}: empty. The best checkpoint is chosen on dev: prepare more rows.")
    folds = make_folds(train, dev, numbers) if (numbers := read_folds(rows)) else []
    released = Part("", 1, 1 + len(folds))
    watch = Watch(TITLE, target / "log", config.trackers, gateway_url, labels.names, released)
    card = StyleCard(stage="style", max_length=config.max_length, parents=parents, cross_fitted=len(folds))
    metrics, facts = _train(base, train, dev, labels, config, checkpoints, target / "model", watch, card)
    if folds:

        def train_fold(fold: Fold, folder: Path) -> None:
            at = [each.number for each in folds].index(fold.number) + 1
            part = Part(f"fold {at} of {len(folds)}", 1 + at, 1 + len(folds))
            quiet = Watch(TITLE, folder / "log", part=part)
            _train(base, fold.train, fold.dev, labels, config, folder / "checkpoints", folder, quiet, card)

        cross_fit(folds, train_fold, checkpoints, target / "model")
    write_log(target / "log", TITLE, metrics)
    if config.demo_inference:
        demonstrate(target / "model", dev, target / "log")
    with atomic_write(target / FACTS) as partial:
        partial.write_bytes(orjson.dumps(facts))


def _train(
    base: Path,
    train: Sequence[StyleRow],
    dev: Sequence[StyleRow],
    labels: Labels,
    config: StyleConfig,
    checkpoints: Path,
    folder: Path,
    watch: Watch,
    card: StyleCard,
) -> tuple[list[dict[str, float]], dict[str, float]]:
    """Train on rows and write the calibrated model's folder; return the metrics by step, and the counts."""
    model, tokenizer = open_base(base, labels, [row.input for row in train], config)
    shown = labelled_texts(train, labels, config)
    examples, cut = _examples(tokenizer, shown, labels, config.max_length, config.smoothing)
    dev_texts = [LabelledText(row.input, labels.ids[row.label]) for row in dev]
    loss = weighted_loss([row.label for row in shown], len(labels.labels), config.balance == "weights")
    dev_examples = _examples(tokenizer, dev_texts, labels, config.max_length)[0]
    fitted, metrics = fit(
        "style", model, model.config.pad_token_id, examples, dev_examples, loss, config, checkpoints, watch
    )
    temperature = save_calibrated(merged(fitted), tokenizer, labels, dev, folder, card)
    best = max((row for row in metrics if "macro_f1" in row), key=lambda row: row["macro_f1"])
    last = int(max(row["step"] for row in metrics))
    facts: dict[str, float] = {"rows": len(train), "dev_rows": len(dev), "steps": last}
    facts |= {"accuracy": best["accuracy"], "macro_f1": best["macro_f1"], "temperature": temperature, "cut": cut}
    return metrics, facts


def _examples(
    tokenizer: Any, shown: Sequence[LabelledText], labels: Labels, max_length: int, smoothing: float = 0.0
) -> tuple[StyleDataset, int]:
    """Return the rows in the form that the trainer reads, and the number of texts that reach `max_length`."""
    ids = encode(tokenizer, [row.text for row in shown], max_length)
    targets = one_hot([row.label for row in shown], len(labels.labels), smoothing)
    return StyleDataset(ids, targets), sum(len(tokens) == max_length for tokens in ids)


def weighted_loss(labels: Sequence[int], count: int, weighted: bool) -> Loss:
    """Return the cross-entropy against distributions over the labels. With weights, a rare label counts as much as a
    frequent label."""
    weights = class_weights(labels, count) if weighted else [1.0] * count

    def loss(logits: Any, targets: Any) -> Any:
        import torch

        surprise = -torch.log_softmax(logits.float(), dim=-1) * targets
        row_weights = torch.tensor(weights, device=logits.device)[targets.argmax(-1)]
        return (surprise.sum(-1) * row_weights).sum() / row_weights.sum()

    return loss


def save_calibrated(
    model: Any, tokenizer: Any, labels: Labels, dev: Sequence[StyleRow], folder: Path, card: StyleCard
) -> float:
    """Write the model's folder; returns the temperature that its head was divided by."""
    import numpy as np
    import torch

    # Calibrate the model in the number format in which it is served.
    dtype = torch.bfloat16 if model.device.type == "cuda" else torch.float32
    served = StyleModel(TorchEngine(model.to(dtype)), tokenizer, labels, card)
    logits = np.log(np.maximum(served.probabilities([row.input for row in dev]), 1e-30))
    temperature = fit_temperature(logits, [labels.ids[row.label] for row in dev])
    divide_logits(model, temperature)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_mapping(folder, labels)
    write_card(folder, card.model_copy(update={"temperature": temperature}))
    return temperature


def write_log(folder: Path, title: str, metrics: Sequence[dict[str, float]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / METRICS).write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in metrics))
    (folder / CURVE_FILE).write_text(rows_curve(title, CURVES, metrics), encoding="utf-8")


def demonstrate(folder: Path, dev: Sequence[StyleRow], log: Path) -> None:
    """Log a few rows with their label and the model's prediction, as the plan's inference demo."""
    predictions = StyleModel.load(folder).predict([row.input for row in dev[:SHOWN]])
    pairs = zip(dev[:SHOWN], predictions, strict=True)
    lines = [{"input": row.input, "label": row.label, **prediction} for row, prediction in pairs]
    (log / "demo.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    for line in lines:
        say(f"[style] {line['label']} -> {line['predicted_label']} {line['confidence']:.3f}  {line['input']!r}")
