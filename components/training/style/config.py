"""Settings of the style model's training. The defaults are the plan's."""

from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction, Positive


class StyleConfig(Config):
    """One training of the classifier."""

    device: Literal["cuda", "cpu"] = "cuda"
    """Device to run on; with `cuda` and no GPU the stage fails. On `cuda` in bfloat16."""

    max_length: Positive = 512
    """Tokens of a text that are read; the rest is cut off, and counted."""

    epochs: float = Field(default=3.0, gt=0)
    """Passes over the training rows, unless macro-F1 on dev stops rising before: the plan's num_train_epochs."""

    learning_rate: float = Field(default=2e-5, gt=0)
    """At its height."""

    batch: Positive = 4
    """Rows a step: the plan's per_device_train_batch_size."""

    eval_batch: Positive = 8
    """Rows at once while validating: the plan's per_device_eval_batch_size."""

    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay of all weights but norms and biases."""

    seed: int = 42
    """Seed of the order, of the new head's weights, and of dropped answers."""

    demo_inference: bool = False
    """Afterwards, show what it says of a few development rows, in the log."""

    warmup: Fraction = 0.1
    """Share of the steps in which the learning rate rises."""

    smoothing: Fraction = 0.0
    """Share of each label that is spread over all labels. It helps if people label carelessly."""

    balance: Literal["none", "weights", "sampling"] = "weights"
    """Rare labels count more in the loss, or come more often, or neither."""

    answer_dropped: Fraction = 0.1
    """So many of the rows are also shown without their answer: the model learns what a question alone calls for."""

    evaluations: Positive = 1
    """Validations an epoch; a checkpoint is saved at each."""

    patience: int = Field(default=2, ge=0)
    """Validations without a better macro-F1 before it stops; 0 trains to the end."""


class DistilConfig(Config):
    """A smaller model that learns what the style model says."""

    device: Literal["cuda", "cpu"] = "cuda"
    """As for the style model."""

    layers: Positive | None = None
    """How many of the teacher's layers it keeps, evenly chosen; half of them without a number."""

    temperature: float = Field(default=2.0, gt=0)
    """Teacher's and student's logits are divided by it: small probabilities teach too."""

    labelled: Fraction = 0.3
    """How much the data's own labels count beside the teacher's word, where there are any."""

    epochs: float = Field(default=3.0, gt=0)
    """Passes over training rows and unlabelled texts."""

    learning_rate: float = Field(default=5e-5, gt=0)
    """At its height."""

    batch: Positive = 16
    """Texts a step."""

    eval_batch: Positive = 32
    """Rows at once while validating."""

    bound: Fraction = 0.05
    """The int8 model's probabilities may differ from the float one's by so much on any row of dev, at most."""

    seed: int = 42
    """Seed of the order."""
