"""Settings of the base stage."""

from typing import Literal

from pydantic import Field

from qinglan.config import Config, Positive


class TinyConfig(Config):
    """A model small enough to train from nothing on a laptop, in a fixed number of steps."""

    vocabulary: Positive = 3000
    """Most tokens of its own byte-pair tokenizer."""

    longest_token: Positive = 6
    """Characters of a token: a house term is one or two of them, an item is not swallowed whole."""

    hidden: Positive = 128
    """Width."""

    layers: Positive = 3
    """Depth."""

    heads: Positive = 4
    """Attention heads; half as many for keys and values."""

    spread: float = Field(default=0.06, gt=0)
    """Standard deviation of the first weights. At transformers' .02 a model this small does not learn to copy."""

    steps: Positive = 260
    """Fixed, not a time: under load a time would give a worse model."""

    batch: Positive = 64
    """Texts a step."""

    learning_rate: float = Field(default=3e-3, gt=0)
    """At its height, after the first steps."""


class BaseConfig(Config):
    """The source of the student's weights before any training of ours."""

    source: Literal["hub", "tiny"] = "hub"
    """`hub` downloads `model`; `tiny` trains one from the knowledge base's text."""

    model: str = "Qwen/Qwen3-32B"
    """On the hub, or a folder of this machine. A folder of that name under QINGLAN_BASE_WEIGHTS comes first."""

    revision: str = "main"
    """A commit of the model's repository; a release names one."""

    seed: int = 0
    """Seed of the tiny model."""

    tiny: TinyConfig = TinyConfig()
    """The tiny model's shape and training."""
