"""Settings of the SFT stage. The defaults are for LoRA of a 32B model on four A100s."""

from typing import Literal, Self

from pydantic import Field, model_validator

from qinglan.config import Config, Fraction, Positive, Seed
from qinglan.live.trackers import Tracker

COMPARED_ROWS = 512
"""Largest number of dev rows on which the models with and without the teacher's further rows are compared."""


class SftConfig(Config):
    """Supervised fine-tuning of the student by ms-swift."""

    device: Literal["cuda", "cpu"] = "cuda"
    """Device of the training. With `cuda` but no GPU the stage fails, instead of training slowly on the CPU."""

    gpus: Positive = 4
    """Number of GPUs per node. On `cpu` each node runs one process."""

    threads: Positive = 2
    """Number of threads on `cpu`. It changes the order of sums, and so the last bits of the weights."""

    nodes: Positive = 1
    """Number of machines. On a cluster they are the pods of one job."""

    tuner: Literal["lora", "full"] = "lora"
    """Weights that are trained: `lora` trains an adapter, which is merged afterwards; `full` trains all weights."""

    model_type: str | None = None
    """ms-swift's name of the architecture; if null, `model_type` in the base's config.json is used."""

    template: str | None = None
    """ms-swift's name of the chat template; if null, one that renders prompts like the base's own is found."""

    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Number format of weights and arithmetic."""

    epochs: float = Field(default=3.0, gt=0)
    """Number of passes over the training rows, unless validation loss stops falling earlier (`patience`)."""

    batch: Positive = 2
    """Number of rows per device and step."""

    eval_batch: Positive = 2
    """Number of rows per device in validation."""

    accumulation: Positive = 8
    """Number of steps whose gradients are summed before an update."""

    learning_rate: float = Field(default=5e-5, gt=0)
    """Highest learning rate."""

    warmup: Fraction = 0.05
    """Share of the steps during which the learning rate rises."""

    lora_rank: Positive = 16
    """Rank of the adapter."""

    lora_alpha: Positive = 32
    """Numerator of the adapter's scale: its output is multiplied by alpha / rank."""

    target_modules: str = "all-linear"
    """Names of the modules that get the adapter."""

    max_length: Positive = 2048
    """Largest number of tokens in a row. A prompt may have `max_new_tokens` fewer. Of a longer history the
    oldest turns are left out, in training as in serving. A row that is too long without any history is left out
    and listed."""

    deepspeed: Literal["zero2", "zero3"] | None = None
    """ZeRO stage: zero2 shards optimizer and gradients, zero3 also shards the weights. Full tuning of 32B needs
    zero3. On one CPU nothing is sharded."""

    checkpointing: bool = True
    """Gradient checkpointing on a GPU: each layer's activations are computed again instead of kept. It saves a few GB
    and takes a third more time. `fit` says if a card has room without it."""

    validations: Positive = 8
    """Number of validations, evenly spread over the training, the last one at its end. Each saves a checkpoint. A
    training with fewer steps has fewer validations."""

    keep_checkpoints: Positive = 3
    """Number of newest checkpoints that are kept, in addition to the best one."""

    patience: int = Field(default=3, ge=0)
    """Number of consecutive validations without a better loss after which the training stops; 0 trains to the end."""

    log_every: Positive = 10
    """Number of steps between two lines of the log."""

    workers: int = Field(default=4, ge=0)
    """Number of processes that prepare batches."""

    seed: Seed = 42
    """Seed of the rows' order and of dropout."""

    max_new_tokens: Positive = 150
    """Largest number of tokens in a rewrite by the trained model in serving."""

    compare_further_rows: bool = True
    """Comparison with a second training without the teacher's further rows. The further rows are used only if the
    model with them finds no less on dev. `false` uses them without a comparison."""

    trackers: tuple[Tracker, ...] = ("tensorboard",)
    """Trackers that get the training's figures, beside metrics.jsonl; a run sets them for all its trainings."""

    @property
    def max_prompt_tokens(self) -> int:
        """Return the largest number of tokens in a prompt, in training and in serving."""
        return self.max_length - self.max_new_tokens

    @property
    def processes(self) -> int:
        return self.gpus if self.device == "cuda" else 1

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.max_prompt_tokens < 1:
            raise ValueError(
                f"max_length {self.max_length} has no room for a prompt beside max_new_tokens {self.max_new_tokens}"
            )
        return self
