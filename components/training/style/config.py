"""Settings of the style model's training. The defaults are the plan's; the README says which are ours."""

from typing import ClassVar, Literal

from pydantic import Field

from qinglan.config import Config, Fraction, Positive, Seed
from qinglan.live.trackers import Tracker


class StyleConfig(Config):
    """Training of the classifier."""

    device: Literal["cuda", "cpu"] = "cuda"
    """Device of the training. `cuda` without a GPU is an error; with a GPU, bfloat16 is used."""

    max_length: Positive = 512
    """Highest number of tokens read from a text. Longer texts are cut; texts that reach this number are counted."""

    epochs: float = Field(default=3.0, gt=0)
    """Number of passes over the training rows (the plan's num_train_epochs). Training ends earlier if macro-F1 on dev
    stops rising."""

    learning_rate: float = Field(default=2e-5, gt=0)
    """Highest learning rate."""

    batch: Positive = 4
    """Rows in a batch (the plan's per_device_train_batch_size). A step has `accumulation` batches."""

    accumulation: Positive = 1
    """Number of batches whose gradients are averaged for one step."""

    checkpointing: bool = False
    """Gradient checkpointing: activations are computed again in the backward pass and not kept, which takes less
    memory but more time."""

    lora_rank: int = Field(default=0, ge=0)
    """Rank of LoRA adapters on every linear layer, which are merged into the weights at the end; 0 trains all
    weights. With adapters, the frozen base is in bfloat16 on `cuda`, so that a larger base fits."""

    eval_batch: Positive = 8
    """Rows in a batch of a validation (the plan's per_device_eval_batch_size)."""

    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay of all weights except norms and biases."""

    seed: Seed = 42
    """Seed of the rows' order, of the new head's weights, and of dropped answers."""

    demo_inference: bool = False
    """Log the trained model's predictions for a few development rows."""

    warmup: Fraction = 0.1
    """Share of the steps in which the learning rate rises; the plan has none. The head begins with random weights,
    and without the rise its first gradients would be too large for the pretrained layers."""

    smoothing: Fraction = 0.0
    """Share of each label that is spread over all labels (label smoothing); it helps against careless labels."""

    balance: Literal["none", "weights", "sampling"] = "weights"
    """Method to balance rare labels: `weights` gives them larger weights in the loss, `sampling` repeats their rows,
    `none` leaves them rare."""

    answer_dropped: Fraction = 0.1
    """Share of rows that are shown again without their answer, so that the model learns from questions too."""

    evaluations: Positive = 1
    """Number of validations per epoch; each one saves a checkpoint."""

    patience: int = Field(default=2, ge=0)
    """Number of validations without a better macro-F1 after which the training stops; 0 trains to the end."""

    trackers: tuple[Tracker, ...] = ("tensorboard",)
    """Trackers that receive the training's figures, in addition to metrics.jsonl. A run sets `trackers` once for all
    its trainings."""


class DistilConfig(Config):
    """Distillation of the style model into a smaller one."""

    # The trainer also reads these settings of StyleConfig; they are fixed for a distillation.
    weight_decay: ClassVar[float] = 0.01
    warmup: ClassVar[float] = 0.1
    evaluations: ClassVar[int] = 1
    patience: ClassVar[int] = 0

    device: Literal["cuda", "cpu"] = "cuda"
    """Device of the training. `cuda` without a GPU is an error; with a GPU, bfloat16 is used."""

    layers: Positive | None = None
    """Number of the teacher's layers that are kept, evenly chosen; null keeps half of them, rounded down."""

    temperature: float = Field(default=2.0, gt=0)
    """Divisor of the teacher's and student's logits; a higher one lets the student learn small probabilities."""

    labelled: Fraction = 0.3
    """Weight of the data's label in the loss of a labelled text; the teacher's probabilities have the rest."""

    epochs: float = Field(default=3.0, gt=0)
    """Number of passes over training rows and unlabelled texts."""

    learning_rate: float = Field(default=5e-5, gt=0)
    """Highest learning rate."""

    batch: Positive = 16
    """Texts in a batch. A step has `accumulation` batches."""

    accumulation: Positive = 1
    """Number of batches whose gradients are averaged for one step."""

    checkpointing: bool = False
    """Gradient checkpointing: activations are computed again in the backward pass and not kept, which takes less
    memory but more time."""

    eval_batch: Positive = 32
    """Rows in a batch of a validation."""

    bound: Fraction = 0.05
    """Largest difference allowed between a probability of the int8 model and the float model, on any row of dev."""

    seed: Seed = 42
    """Seed of the texts' order."""

    trackers: tuple[Tracker, ...] = ("tensorboard",)
    """Trackers that receive the training's figures, in addition to metrics.jsonl. A run sets `trackers` once for all
    its trainings."""
