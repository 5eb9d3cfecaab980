"""Settings of the SFT stage. The defaults are the plan's, for LoRA of a 32B model on four A100s."""

from typing import Literal, Self

from pydantic import Field, model_validator

from qinglan.config import Config, Fraction, Positive, Seed
from qinglan.live.trackers import Tracker

COMPARED_ROWS = 512
"""Most dev rows on which the models with and without the teacher's further rows are compared."""


class SftConfig(Config):
    """Supervised fine-tuning of the student by ms-swift."""

    device: Literal["cuda", "cpu"] = "cuda"
    """Device of the training. With `cuda` and no GPU the stage fails, and does not train slowly instead."""

    gpus: Positive = 4
    """GPUs of each node. On `cpu` each node runs one process."""

    threads: Positive = 2
    """Threads on `cpu`. Their number changes the order of sums, and so the last bits of the weights."""

    nodes: Positive = 1
    """Number of machines, which are the pods of one job on a cluster."""

    tuner: Literal["lora", "full"] = "lora"
    """Weights that are trained: those of a LoRA adapter, which is merged afterwards, or all."""

    model_type: str | None = None
    """ms-swift's name of the architecture; null takes `model_type` of the base's config.json."""

    template: str | None = None
    """ms-swift's name of the chat template; null finds the one that renders prompts like the base's own template."""

    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Number format of weights and arithmetic."""

    epochs: float = Field(default=3.0, gt=0)
    """Passes over the training rows, unless validation loss stops falling before."""

    batch: Positive = 2
    """Rows per device and step."""

    eval_batch: Positive = 2
    """Rows per device while validating."""

    accumulation: Positive = 8
    """Steps whose gradients are summed before an update."""

    learning_rate: float = Field(default=5e-5, gt=0)
    """Highest learning rate."""

    warmup: Fraction = 0.05
    """Share of the steps during which the learning rate rises."""

    lora_rank: Positive = 16
    """Rank of the adapter."""

    lora_alpha: Positive = 32
    """Numerator of the adapter's scale: its output is multiplied by alpha / rank."""

    target_modules: str = "all-linear"
    """Modules that get the adapter."""

    max_length: Positive = 2048
    """Most tokens of a row. A prompt may have `max_new_tokens` less: the oldest turns of a longer history are left
    out, in training as in serving. A row that is too long without any history is left out and listed."""

    deepspeed: Literal["zero2", "zero3"] | None = None
    """ZeRO stage: zero2 shards optimizer and gradients, zero3 also the weights. Full tuning of 32B needs zero3. On
    one CPU nothing is sharded."""

    checkpointing: bool = True
    """Gradient checkpointing on a GPU: each layer's activations are computed again, which saves a few GB for a third
    more time. `fit` says if a card has room without it."""

    validations: Positive = 8
    """Validations in the whole training, evenly spread, the last one at its end; each saves a checkpoint. A training
    with fewer steps has fewer."""

    keep_checkpoints: Positive = 3
    """Newest checkpoints that are kept, beside the best one."""

    patience: int = Field(default=3, ge=0)
    """Validations in a row without a better loss before the training stops; 0 trains to the end."""

    log_every: Positive = 10
    """Steps between lines of the log."""

    workers: int = Field(default=4, ge=0)
    """Processes that prepare batches."""

    seed: Seed = 42
    """Seed of the rows' order and of dropout."""

    max_new_tokens: Positive = 150
    """Longest rewrite that the trained model is allowed when it serves."""

    compare_further_rows: bool = True
    """Train a second time without the teacher's further rows, and take them only if dev finds more with them; `false`
    takes them unproved."""

    trackers: tuple[Tracker, ...] = ("tensorboard",)
    """Trackers that get the training's figures, beside metrics.jsonl; a run sets them for all its trainings."""

    @property
    def max_prompt_tokens(self) -> int:
        """Most tokens of a prompt, in training and in serving."""
        return self.max_length - self.max_new_tokens

    @property
    def processes(self) -> int:
        """Processes on each node."""
        return self.gpus if self.device == "cuda" else 1

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.max_prompt_tokens < 1:
            raise ValueError(
                f"max_length {self.max_length} has no room for a prompt beside max_new_tokens {self.max_new_tokens}"
            )
        return self
