"""Settings of the style model's training. The defaults are the plan's; the README says which are ours."""

from typing import ClassVar, Literal

from pydantic import Field

from qinglan.config import Config, Fraction, Positive, Seed
from qinglan.live.trackers import Tracker


class StyleConfig(Config):
    """Training of the classifier."""

    device: Literal["cuda", "cpu"] = "cuda"
    """Device to run on; with `cuda` and no GPU the stage fails. On `cuda` in bfloat16."""

    max_length: Positive = 512
    """Most tokens of a text that are read; the rest is cut off, and the texts cut are counted."""

    epochs: float = Field(default=3.0, gt=0)
    """Passes over the training rows, unless macro-F1 on dev stops rising before: the plan's num_train_epochs."""

    learning_rate: float = Field(default=2e-5, gt=0)
    """Highest learning rate."""

    batch: Positive = 4
    """Rows at once: the plan's per_device_train_batch_size. A step has `accumulation` times as many."""

    accumulation: Positive = 1
    """Batches whose gradients are averaged before a step."""

    checkpointing: bool = False
    """Compute activations once more in the backward pass instead of keeping them: less memory for more time."""

    lora_rank: int = Field(default=0, ge=0)
    """Rank of LoRA adapters on every linear layer, merged into the weights at the end; 0 trains all weights. With
    adapters the frozen base is in bfloat16 on `cuda`, so that a larger one fits."""

    eval_batch: Positive = 8
    """Rows at once while validating: the plan's per_device_eval_batch_size."""

    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay of all weights but norms and biases."""

    seed: Seed = 42
    """Seed of the rows' order, of the new head's weights, and of dropped answers."""

    demo_inference: bool = False
    """Log the trained model's predictions for a few development rows."""

    warmup: Fraction = 0.1
    """Share of the steps in which the learning rate rises; the plan has none. The head begins with random weights,
    and its first gradients would be large in the pretrained layers."""

    smoothing: Fraction = 0.0
    """Label smoothing: share of each label that is spread over all labels; helps with careless labels."""

    balance: Literal["none", "weights", "sampling"] = "weights"
    """Balance of rare labels: larger weights in the loss, more frequent sampling, or none."""

    answer_dropped: Fraction = 0.1
    """Share of rows that are shown a second time without their answer, so that the model learns from questions
    too."""

    evaluations: Positive = 1
    """Validations per epoch; a checkpoint is saved at each."""

    patience: int = Field(default=2, ge=0)
    """Validations without a better macro-F1 before it stops; 0 trains to the end."""

    trackers: tuple[Tracker, ...] = ("tensorboard",)
    """Trackers that get its figures, beside metrics.jsonl; a run sets `trackers` once for all its trainings."""


class DistilConfig(Config):
    """Distillation of the style model into a smaller one."""

    # Of StyleConfig's settings the trainer reads these too; they are fixed for a distillation.
    weight_decay: ClassVar[float] = 0.01
    warmup: ClassVar[float] = 0.1
    evaluations: ClassVar[int] = 1
    patience: ClassVar[int] = 0

    device: Literal["cuda", "cpu"] = "cuda"
    """Device to run on; with `cuda` and no GPU the stage fails. On `cuda` in bfloat16."""

    layers: Positive | None = None
    """Number of the teacher's layers that are kept, evenly chosen; null keeps half of them, rounded down."""

    temperature: float = Field(default=2.0, gt=0)
    """Divisor of the teacher's and student's logits; a higher one lets the student learn small probabilities."""

    labelled: Fraction = 0.3
    """Weight of the data's label in the loss of a labelled text; the teacher's probabilities have the rest."""

    epochs: float = Field(default=3.0, gt=0)
    """Passes over training rows and unlabelled texts."""

    learning_rate: float = Field(default=5e-5, gt=0)
    """Highest learning rate."""

    batch: Positive = 16
    """Texts at once. A step has `accumulation` times as many."""

    accumulation: Positive = 1
    """Batches whose gradients are averaged before a step."""

    checkpointing: bool = False
    """Compute activations once more in the backward pass instead of keeping them: less memory for more time."""

    eval_batch: Positive = 32
    """Rows at once while validating."""

    bound: Fraction = 0.05
    """Largest difference allowed between a probability of the int8 model and the float model, on any row of dev."""

    seed: Seed = 42
    """Seed of the texts' order."""

    trackers: tuple[Tracker, ...] = ("tensorboard",)
    """Trackers that get its figures, beside metrics.jsonl; a run sets `trackers` once for all its trainings."""
