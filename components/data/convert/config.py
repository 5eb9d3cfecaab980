"""Settings of the convert stage."""

from typing import Self

from pydantic import Field, model_validator

from qinglan.prompts import SystemPrompt
from qinglan.rows.splits import SplitConfig


class ConvertConfig(SplitConfig):
    """How validated rewrites become training files and a locked test."""

    folds: int = Field(default=0, ge=0, le=20)
    """Number of folds of a sheet that is too small for a locked test. A run with `cross_fit` sets it; profiles do
    not."""

    fold: int = Field(default=0, ge=0, le=20)
    """Fold that is the test, from 1 on. 0 leaves no test: train and dev are then those of the released model."""

    near_duplicate: float = Field(default=0.8, gt=0, le=1)
    """Similarity from which two rows are one task: Jaccard index of three-character pieces of question and history.
    Rows with the same question and the same history in other words are one task too."""

    tenant_ratio: float = Field(default=4.0, ge=1)
    """Largest ratio of the training rows of the largest tenant to those of the smallest."""

    system_prompt: SystemPrompt = ""
    """Student's system prompt in training and serving, in the forms of generate's; empty takes qinglan/prompts."""

    @model_validator(mode="after")
    def _fold_of_folds(self) -> Self:
        if self.folds == 1 or self.fold > self.folds:
            raise ValueError(
                f"fold {self.fold} of {self.folds}: take at least two folds, and a fold from 0 to their number"
            )
        return self
