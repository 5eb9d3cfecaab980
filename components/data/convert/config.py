"""Settings of the convert stage."""

from typing import Self

from pydantic import Field, model_validator

from qinglan.prompts import SystemPrompt
from qinglan.rows.splits import SplitConfig


class ConvertConfig(SplitConfig):
    """Conversion of validated rewrites into training files and a locked test."""

    folds: int = Field(default=0, ge=0, le=20)
    """Number of folds of a sheet without a locked test, since it is too small. Only a run with `cross_fit` sets
    it."""

    fold: int = Field(default=0, ge=0, le=20)
    """Number of the fold that is the test, counted from 1. If `folds` is set and this is 0, there is no test: train
    and dev hold the rows of all folds, for the released model."""

    near_duplicate: float = Field(default=0.8, gt=0, le=1)
    """Similarity from which two rows count as the same task: Jaccard index of three-character pieces of question and
    history. Rows with the same question also count as the same task if their histories only differ in wording."""

    tenant_ratio: float = Field(default=4.0, ge=1)
    """Largest allowed ratio between the training rows of the largest tenant and of the smallest tenant."""

    system_prompt: SystemPrompt = ""
    """Student's system prompt in training and serving, in the forms of `generate.system_prompt`. If empty, the
    prompts of qinglan/prompts are used."""

    @model_validator(mode="after")
    def _fold_of_folds(self) -> Self:
        if self.folds == 1 or self.fold > self.folds:
            raise ValueError(
                f"fold {self.fold} of {self.folds}: take at least two folds, and a fold from 0 to their number"
            )
        return self
