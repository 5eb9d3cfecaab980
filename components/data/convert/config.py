"""Settings of the convert stage."""

from typing import Self

from pydantic import Field, model_validator

from qinglan.prompts import SystemPrompt
from qinglan.rows.splits import SplitConfig


class ConvertConfig(SplitConfig):
    """How validated rewrites become training files and a locked test."""

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
    def _fold_of_folds(self) -> Self:
        if self.folds == 1 or self.fold > self.folds:
            raise ValueError(
                f"fold {self.fold} of {self.folds}: take at least two folds, and a fold from 0 to their number"
            )
        return self
