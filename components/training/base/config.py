"""Settings of the base stage."""

from typing import Literal

from pydantic import Field

from qinglan.config import Config, Positive, Seed


class TinyConfig(Config):
    """A model small enough to train from scratch on a laptop, in a fixed number of steps."""

    vocabulary: Positive = 3000
    """Most tokens of its byte-pair tokenizer."""

    longest_token: Positive = 6
    """Most characters of a token: a term of the company is then one or two tokens, and an item more than one."""

    hidden: Positive = 128
    """Width of the hidden layers."""

    layers: Positive = 3
    """Number of layers."""

    heads: Positive = 4
    """Number of attention heads; keys and values have half as many."""

    spread: float = Field(default=0.06, gt=0)
    """Standard deviation of the first weights. With transformers' .02 a model this small does not learn to copy."""

    steps: Positive = 260
    """Number of training steps. A time limit would give a worse model on a busy machine."""

    batch: Positive = 64
    """Texts per step."""

    learning_rate: float = Field(default=3e-3, gt=0)
    """Highest learning rate, after the first steps."""


class BaseConfig(Config):
    """Weights that the student starts from."""

    source: Literal["hub", "tiny"] = "hub"
    """Source of the weights: `hub` downloads `model`; `tiny` trains a model on the knowledge base's text."""

    model: str = "Qwen/Qwen3-32B"
    """Name of a model on the hub, or a folder. A folder of that name under QINGLAN_BASE_WEIGHTS is preferred."""

    revision: str = "main"
    """Commit of the model's repository; a release requires one."""

    critic: str | None = None
    """Model that PPO's critic starts from, which is checked together with the base if it is on this machine. A
    rewriter's run takes it from ppo.critic_model."""

    seed: Seed = 0
    """Seed of the tiny model."""

    tiny: TinyConfig = TinyConfig()
    """The tiny model's shape and training."""
