"""Settings of the base stage."""

from typing import Literal

from pydantic import Field

from qinglan.config import Config, Positive, Seed


class TinyConfig(Config):
    """A model small enough to train from nothing on a laptop, in a fixed number of steps."""

    vocabulary: Positive = 3000
    """Largest number of tokens of its byte-pair tokenizer."""

    longest_token: Positive = 6
    """Longest token in characters: a term of the house is one or two tokens, and an item is more than one."""

    hidden: Positive = 128
    """Width of the hidden layers."""

    layers: Positive = 3
    """Number of layers."""

    heads: Positive = 4
    """Attention heads; half as many for keys and values."""

    spread: float = Field(default=0.06, gt=0)
    """Standard deviation of the first weights. At transformers' .02 a model this small does not learn to copy."""

    steps: Positive = 260
    """Training steps; a fixed number, since a time limit would give a worse model on a busy machine."""

    batch: Positive = 64
    """Texts per step."""

    learning_rate: float = Field(default=3e-3, gt=0)
    """Highest learning rate, reached after the first steps."""


class BaseConfig(Config):
    """The source of the student's weights before any training of ours."""

    source: Literal["hub", "tiny"] = "hub"
    """`hub` downloads `model`; `tiny` trains one from the knowledge base's text."""

    model: str = "Qwen/Qwen3-32B"
    """Model on the hub, or a folder here. A folder of that name under QINGLAN_BASE_WEIGHTS is preferred."""

    revision: str = "main"
    """Commit of the model's repository; a release requires one."""

    critic: str | None = None
    """Model that PPO's critic starts from; where it lies beside the base, both are checked together. A rewriter's run
    takes it from ppo.critic_model."""

    seed: Seed = 0
    """Seed of the tiny model."""

    tiny: TinyConfig = TinyConfig()
    """The tiny model's shape and training."""
