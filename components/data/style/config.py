"""Settings of the preparation of labelled answers."""

from typing import Self

from pydantic import Field, model_validator

from qinglan.config import Config, Fraction, Seed
from qinglan.style.labels import DEFAULT_LABELS, Label, Labels


class StyleColumns(Config):
    """Names of the sheet's columns."""

    question: str = "问题"
    """Column with the user's question; question and answer are joined into the training form."""

    answer: str = "回答"
    """Column with the answer."""

    input: str = "input"
    """Column with the training form as one text; it replaces the columns of question and answer."""

    label: str = "标签"
    """Column with the label's Chinese name."""

    english: str = "label_english"
    """Column with the label's English name, optional. Both names must belong to the same label."""


class PrepareStyleConfig(Config):
    """Preparation of labelled answers."""

    labels: tuple[Label, ...] = DEFAULT_LABELS.labels
    """Labels that answers can have; a run's profile names a mapping file instead."""

    columns: StyleColumns = StyleColumns()
    """Column names of a spreadsheet."""

    test: Fraction = Field(default=0.2, gt=0, lt=1)
    """Share of each label's answers that is locked away as the test."""

    dev: Fraction = Field(default=0.1, gt=0, lt=1)
    """Share of each label's answers on which the checkpoint is chosen and the temperature is fitted."""

    cross_fit_below: int = Field(default=0, ge=0)
    """Lowest number of rows in the locked test. If the test would have fewer, all rows are cross-fitted: every row is
    judged by a model that did not learn from it, and the released model learns from all rows except dev. 0 always
    locks a test away."""

    folds: int = Field(default=5, ge=2, le=20)
    """Number of parts of a cross-fitted data set. Each part is judged by a model that learned from the other
    parts."""

    alike: Fraction = 0.8
    """Similarity (Jaccard of three-character pieces) from which answers are put into the same split."""

    seed: Seed = 42
    """Seed of the splits."""

    @model_validator(mode="after")
    def _some_to_learn(self) -> Self:
        if self.test + self.dev >= 1:
            raise ValueError("test and dev together leave nothing to learn from")
        Labels(labels=self.labels)
        return self
