"""Settings of the SFT stage. The defaults are the plan's, for LoRA of a 32B model on four A100s."""

from typing import Literal, Self

from pydantic import Field, model_validator

from qinglan.config import Config, Fraction, Positive


class SftConfig(Config):
    """One `swift sft`."""

    device: Literal["cuda", "cpu"] = "cuda"
    """Device to run on; with `cuda` and no GPU the stage fails instead of training slowly."""

    gpus: Positive = 4
    """On each node; on `cpu` one process is started there."""

    nodes: Positive = 1
    """More than one are the pods of one job on a cluster."""

    tuner: Literal["lora", "full"] = "lora"
    """LoRA is merged afterwards."""

    model_type: str | None = None
    """ms-swift's name of the architecture; null takes `model_type` of the base's config.json."""

    template: str | None = None
    """ms-swift's name of the chat template; null finds the one that renders prompts as the base's own does."""

    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Number format of weights and arithmetic."""

    epochs: float = Field(default=3.0, gt=0)
    """Passes over the training rows, unless validation loss stops falling before."""

    batch: Positive = 2
    """Rows a device and step."""

    eval_batch: Positive = 2
    """Rows a device, while validating."""

    accumulation: Positive = 8
    """Steps whose gradients are added up."""

    learning_rate: float = Field(default=5e-5, gt=0)
    """At its height."""

    warmup: Fraction = 0.05
    """Share of the steps in which the learning rate rises."""

    lora_rank: Positive = 16
    """Rank of the adapter."""

    lora_alpha: Positive = 32
    """Its weight is alpha / rank."""

    target_modules: str = "all-linear"
    """Modules that get the adapter."""

    max_length: Positive = 2048
    """Tokens of a row; a longer one is an error, never cut."""

    deepspeed: Literal["zero2", "zero3"] | None = None
    """Shards optimizer, gradients and, in zero3, weights: what full tuning of 32B needs."""

    evaluate_every: Positive = 100
    """Steps between validations; a checkpoint is saved at each."""

    keep_checkpoints: Positive = 3
    """Older ones are deleted, the best never."""

    patience: int = Field(default=3, ge=0)
    """Validations without a better loss before it stops; 0 trains to the end."""

    log_every: Positive = 10
    """Steps between lines of the log."""

    workers: int = Field(default=4, ge=0)
    """Processes that prepare batches."""

    seed: int = 42
    """Seed of the rows' order and of dropout."""

    max_new_tokens: Positive = 150
    """Longest rewrite that the trained model is allowed when it serves."""

    @property
    def processes(self) -> int:
        """On each node."""
        return self.gpus if self.device == "cuda" else 1

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.device == "cpu" and self.deepspeed:
            raise ValueError("deepspeed is for GPUs; leave it out with device: cpu")
        return self
