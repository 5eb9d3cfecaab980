"""Settings of the convert stage."""

from typing import Self

from pydantic import Field, model_validator

from qinglan.config import Config, Fraction
from qinglan.prompts import SystemPrompt


class ConvertConfig(Config):
    """How validated rewrites become training files and a locked test."""

    train: Fraction = 0.8
    """Share of conversations, not rows: turns of one conversation stay together."""

    dev: Fraction = 0.1
    """Share of conversations to choose settings on; what train and dev leave is the locked test."""

    seed: int = 42
    """Another seed, another split."""

    folds: int = Field(default=0, ge=0, le=20)
    """Parts of a sheet that is too small for a locked test;
    only a run that cross-fits sets this (`cross_fit`), no profile."""

    fold: int = Field(default=0, ge=0, le=20)
    """The part that is locked away, from 1 on; by 0 none is, and train and dev are the released model's."""

    near_duplicate: float = Field(default=0.8, gt=0, le=1)
    """Similarity from which two rows are one task: Jaccard of three-character pieces, question with history. Rows
    with the same question and a history that is told otherwise are one task too."""

    tenant_ratio: float = Field(default=4.0, ge=1)
    """The largest tenant has at most this many times the training rows of the smallest."""

    system_prompt: SystemPrompt = ""
    """The student's prompt, in training and serving: as generate's; empty takes qinglan/prompts."""

    @model_validator(mode="after")
    def _leave_a_test(self) -> Self:
        if self.train + self.dev > 1:
            raise ValueError(f"train {self.train} + dev {self.dev} is more than the whole; lower one")
        if self.folds == 1 or self.fold > self.folds:
            raise ValueError(
                f"fold {self.fold} of {self.folds}: take at least two folds, and a fold from 0 to their number"
            )
        return self
