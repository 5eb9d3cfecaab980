"""Settings of the base stage."""

from typing import Literal

from pydantic import Field

from qinglan.config import Config, Positive, Seed


class TinyConfig(Config):
    """Tiny model, which can be trained from scratch on a laptop in a fixed number of steps."""

    vocabulary: Positive = 3000
    """Largest number of tokens in the vocabulary of the tiny model's byte-pair tokenizer."""

    longest_token: Positive = 6
    """Largest number of characters in a token. With this limit a company's term is one or two tokens, and the name of
    an item is more than one."""

    hidden: Positive = 128
    """Width of the hidden layers."""

    layers: Positive = 3
    """Number of layers."""

    heads: Positive = 4
    """Number of attention heads; keys and values have half as many."""

    spread: float = Field(default=0.06, gt=0)
    """Standard deviation of the initial weights. With transformers' 0.02, so small a model does not learn to copy."""

    steps: Positive = 260
    """Number of training steps. A time limit instead would give a worse model on a busy machine."""

    batch: Positive = 64
    """Number of texts per step."""

    learning_rate: float = Field(default=3e-3, gt=0)
    """Highest learning rate, which is reached after the first steps."""


class BaseConfig(Config):
    """Weights from which the student's training starts."""

    source: Literal["hub", "tiny"] = "hub"
    """Source of the weights: `hub` downloads `model`; `tiny` trains a small model on the knowledge base's text."""

    model: str = "Qwen/Qwen3-32B"
    """Name of a model on the hub, or a folder. A folder of that name in QINGLAN_BASE_WEIGHTS comes first."""

    revision: str = "main"
    """Commit of the model's repository on the hub. A release requires a commit."""

    critic: str | None = None
    """Model from which PPO's critic starts. If it is on this machine, it is checked together with the base. A
    rewriter's run takes it from `ppo.critic_model`."""

    seed: Seed = 0
    """Seed of the tiny model."""

    tiny: TinyConfig = TinyConfig()
    """Shape and training of the tiny model."""
