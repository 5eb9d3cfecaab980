"""Draws the split of each conversation (train, dev or the locked test) by a seed, if the sheet does not name it."""

import hashlib
from typing import Self

from pydantic import model_validator

from qinglan.config import Config, Fraction, Seed
from qinglan.rows.rows import Split

Conversation = tuple[str, str]
"""Tenant and conversation id, since two tenants may use the same conversation ids."""


class SplitConfig(Config):
    """Shares of the splits, and the seed that draws them."""

    train: Fraction = 0.8
    """Share of conversations for training. Whole conversations are drawn, not rows, so that the turns of a
    conversation stay together."""

    dev: Fraction = 0.1
    """Share of conversations for choosing settings. The rest, without `train` and `dev`, is the locked test."""

    seed: Seed = 42
    """Seed of the draw; another seed gives another split."""

    @model_validator(mode="after")
    def _leave_a_test(self) -> Self:
        if self.train + self.dev > 1:
            raise ValueError(f"train {self.train} + dev {self.dev} is more than the whole; lower one")
        return self


def split_of(conversation: Conversation, config: SplitConfig) -> Split:
    """Return the split of a conversation. It never depends on other rows."""
    position = hash_fraction(conversation, config.seed)
    if position < config.train:
        return "train"
    return "dev" if position < config.train + config.dev else "test"


def hash_fraction(conversation: Conversation, seed: int) -> float:
    """Map a conversation to a number in [0, 1) that depends only on the conversation and the seed."""
    return int.from_bytes(draw_key(seed, *conversation)[:8], "big") / 2**64


def draw_key(seed: int, *names: str) -> bytes:
    """Return a sort key for a random draw. It depends only on the seed and the names, such as tenant and id, and not
    on other rows."""
    # 0x1F is the unit separator: ("a", "bc") and ("ab", "c") need different texts.
    return hashlib.sha256("\x1f".join((str(seed), *names)).encode()).digest()
