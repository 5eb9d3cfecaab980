"""Put each conversation into train, dev or the locked test: by the sheet's mark, else by a seed."""

import hashlib
from typing import Self

from pydantic import model_validator

from qinglan.config import Config, Fraction, Seed
from qinglan.rows.rows import Split

Conversation = tuple[str, str]
"""Tenant and conversation id: two tenants may number theirs alike."""


class SplitConfig(Config):
    """Shares of the splits, and the seed that draws them."""

    train: Fraction = 0.8
    """Share of conversations, not rows: turns of one conversation stay together."""

    dev: Fraction = 0.1
    """Share of conversations to choose settings on; what train and dev leave is the locked test."""

    seed: Seed = 42
    """Seed of the draw; another seed gives another split."""

    @model_validator(mode="after")
    def _leave_a_test(self) -> Self:
        if self.train + self.dev > 1:
            raise ValueError(f"train {self.train} + dev {self.dev} is more than the whole; lower one")
        return self


def split_of(conversation: Conversation, config: SplitConfig) -> Split:
    """Name the split of a conversation; the answer never depends on the other rows."""
    position = hash_fraction(conversation, config.seed)
    if position < config.train:
        return "train"
    return "dev" if position < config.train + config.dev else "test"


def hash_fraction(conversation: Conversation, seed: int) -> float:
    """A conversation's own point in [0, 1)."""
    return int.from_bytes(draw_key(seed, *conversation)[:8], "big") / 2**64


def draw_key(seed: int, *names: str) -> bytes:
    """Position in a draw by the seed and the names only, such as tenant and id: other rows do not change it."""
    # 0x1F is the unit separator: ("a", "bc") and ("ab", "c") need different texts.
    return hashlib.sha256("\x1f".join((str(seed), *names)).encode()).digest()
