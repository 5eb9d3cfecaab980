"""Train a classifier with transformers' Trainer: validation, the best checkpoint, early stopping, resume after a
kill."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from components.training.style.config import DistilConfig, StyleConfig
from components.training.style.dataset import StyleDataset, collate
from qinglan.errors import TrainingError
from qinglan.files.scratch import last_checkpoint
from qinglan.live.alarms import loss_alarms
from qinglan.live.trackers import Tracker, tracked, training_name
from qinglan.live.view import WHOLE, LiveTraining, Part, live_training

NAMES = {
    "loss": "loss",
    "eval_loss": "eval_loss",
    "eval_macro_f1": "macro_f1",
    "eval_accuracy": "accuracy",
    "eval_weighted_f1": "weighted_f1",
    "grad_norm": "gradient_norm",
    "learning_rate": "learning_rate",
    "epoch": "epoch",
}
"""Our name of each figure, by the Trainer's name."""

LABEL_PREFIX = "eval_f1_"
"""Beginning of the Trainer's name for the F1 of a label; our name is `f1_<label>`."""

CURVES = {"training loss": "loss", "dev loss": "eval_loss", "dev macro-F1": "macro_f1"}
SHOWN_FIGURES = ("loss", "eval_loss", "macro_f1")

Loss = Callable[[Any, Any], Any]
"""Function that computes the loss from logits and targets."""


class Watch(NamedTuple):
    """Places where people follow a training while it runs."""

    title: str
    """Title of the training's curve."""

    log: Path
    """Folder of the training's log, where trackers write their files."""

    trackers: tuple[Tracker, ...] = ()
    gateway_url: str = ""
    """Address of the gateway that shows the training, or ""."""

    labels: tuple[str, ...] = ()
    """Names of the labels, in the order of the model's outputs, for the F1 of each label."""

    part: Part = WHOLE
    """Position of this training among the trainings of its stage."""


def fit(
    label: str,
    model: Any,
    pad_token_id: int,
    train: StyleDataset,
    dev: StyleDataset,
    loss: Loss,
    config: StyleConfig | DistilConfig,
    checkpoints: Path,
    watch: Watch,
) -> tuple[Any, list[dict[str, float]]]:
    """Train to the end, or until macro-F1 on dev stops rising; return the best checkpoint by macro-F1 on dev, and the
    metrics by step.

    An interrupted training in the folder is resumed from its last whole checkpoint.
    """
    from transformers import EarlyStoppingCallback, PrinterCallback, Trainer

    def batch_loss(outputs: Any, targets: Any, num_items_in_batch: Any = None) -> Any:
        # With a compute_loss_func the Trainer sums the batches of a step without dividing (transformers,
        # Trainer.training_step), so each batch returns its part of the step's mean.
        value = loss(outputs.logits, targets)
        return value if config.accumulation == 1 else value * (targets.numel() / num_items_in_batch)

    with (
        live_training(label, watch.title, CURVES, gateway_url=watch.gateway_url, part=watch.part) as live,
        tracked(watch.trackers, label, watch.log, watch.gateway_url),
    ):
        callbacks = [_callback(live)]
        if config.patience:
            callbacks.append(EarlyStoppingCallback(config.patience))
        trainer = Trainer(
            model=model,
            args=_arguments(len(train), config, checkpoints, label, watch.trackers),
            train_dataset=train,
            eval_dataset=dev,
            data_collator=partial(collate, pad_token_id=pad_token_id),
            compute_metrics=partial(dev_scores, labels=watch.labels),
            compute_loss_func=batch_loss,
            callbacks=callbacks,
        )
        trainer.remove_callback(PrinterCallback)  # prints dictionaries; our lines have step and time left
        last = last_checkpoint(checkpoints)
        trainer.train(resume_from_checkpoint=str(last) if last else None)
    return trainer.model, _metrics(trainer.state.log_history)


def _arguments(
    rows: int, config: StyleConfig | DistilConfig, checkpoints: Path, label: str, trackers: Sequence[Tracker]
) -> Any:
    from transformers import TrainingArguments

    # Checkpoints are written at validations only: load_best_model_at_end demands both at the same steps.
    every = max(1, math.ceil(rows / (config.batch * config.accumulation)) // config.evaluations)
    on_gpu = config.device == "cuda"
    return TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=config.epochs,
        learning_rate=config.learning_rate,
        per_device_train_batch_size=config.batch,
        per_device_eval_batch_size=config.eval_batch,
        seed=config.seed,
        weight_decay=config.weight_decay,
        warmup_steps=config.warmup,  # below 1: a share of all steps
        bf16=on_gpu,
        use_cpu=not on_gpu,
        gradient_accumulation_steps=config.accumulation,
        gradient_checkpointing=config.checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if config.checkpointing else None,
        train_sampling_strategy="group_by_length",
        remove_unused_columns=False,
        label_names=["labels"],
        eval_strategy="steps",
        eval_steps=every,
        save_strategy="steps",
        save_steps=every,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="macro_f1",
        greater_is_better=True,
        restore_callback_states_from_checkpoint=True,
        logging_steps=max(1, every // 10),
        report_to=list(trackers) or "none",
        run_name=training_name(label),
        disable_tqdm=True,
        dataloader_pin_memory=on_gpu,
    )


def _callback(live: LiveTraining) -> Any:
    from transformers import TrainerCallback

    class Steps(TrainerCallback):  # type: ignore[misc]
        """Pass each step's metrics to the live view, and end a training whose loss is not a number."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            live.recall(_metrics(state.log_history))

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **_: Any) -> None:
            take_log({"step": state.global_step, **logs}, state.max_steps, live)

    return Steps()


def take_log(entry: Mapping[str, float], total: int, live: LiveTraining) -> None:
    """Pass an entry of the Trainer's log to the live view. A loss that is not a number ends the training with a
    TrainingError."""
    for row in _metrics([entry]):
        figures = [f"{name.replace('_', ' ')} {row[name]:.3f}" for name in SHOWN_FIGURES if name in row]
        live.step(row, total, ", ".join(figures))
        live.check(loss_alarms(live.rows))
    live.refresh()
    if live.stopped:
        raise TrainingError(f"{live.stopped.message} The checkpoints before it are kept.")


def dev_scores(predicted: Any, labels: Sequence[str] = ()) -> dict[str, float]:
    """Return accuracy, and F1 over the labels that occur in dev: the mean over labels, the mean weighted by rows, and
    each label's F1."""
    from sklearn.metrics import f1_score

    best, true = predicted.predictions.argmax(-1), predicted.label_ids.argmax(-1)
    present = np.unique(true)
    each = f1_score(true, best, average=None, labels=present, zero_division=0)
    weighted = float(f1_score(true, best, average="weighted", labels=present, zero_division=0))
    scores = {"accuracy": float((best == true).mean()), "macro_f1": float(each.mean()), "weighted_f1": weighted}
    return scores | {f"f1_{labels[at]}": float(f1) for at, f1 in zip(present, each, strict=True) if at < len(labels)}


def _metrics(history: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    rows = [
        {
            "step": float(entry["step"]),
            **{NAMES[name]: float(entry[name]) for name in NAMES if name in entry},
            **{name.removeprefix("eval_"): float(entry[name]) for name in entry if name.startswith(LABEL_PREFIX)},
        }
        for entry in history
    ]
    return [row for row in rows if "loss" in row or "eval_loss" in row]
