"""Settings of the preparation of labelled answers."""

from typing import Self

from pydantic import Field, model_validator

from qinglan.config import Config, Fraction, Seed
from qinglan.style.labels import DEFAULT_LABELS, Label, Labels


class StyleColumns(Config):
    """Names of the sheet's columns."""

    question: str = "问题"
    """The user's question; with `answer` it makes the training form."""

    answer: str = "回答"
    """The column with the answer."""

    input: str = "input"
    """The training form as one text, in place of question and answer."""

    label: str = "标签"
    """The label's Chinese name."""

    english: str = "label_english"
    """The label's English name, optional: it must belong to the same label."""


class PrepareStyleConfig(Config):
    """Preparation of labelled answers."""

    labels: tuple[Label, ...] = DEFAULT_LABELS.labels
    """The labels; a run's profile names a mapping file."""

    columns: StyleColumns = StyleColumns()
    """Column names of a spreadsheet."""

    test: Fraction = Field(default=0.2, gt=0, lt=1)
    """Share of each label's answers that is locked away."""

    dev: Fraction = Field(default=0.1, gt=0, lt=1)
    """Share that chooses the checkpoint and fits the temperature."""

    cross_fit_below: int = Field(default=0, ge=0)
    """Rows of the locked test below which none is locked away: every row is judged by a model that did not learn
    from it (cross-fitting), and the released model learns from all but dev. 0 always locks a test away."""

    folds: int = Field(default=5, ge=2, le=20)
    """Parts of a cross-fitted data set: each is judged by a model of its own that learned from the others."""

    alike: Fraction = 0.8
    """Similarity (Jaccard of three-character pieces) from which answers are put into one split."""

    seed: Seed = 42
    """Seed of the splits."""

    @model_validator(mode="after")
    def _some_to_learn(self) -> Self:
        if self.test + self.dev >= 1:
            raise ValueError("test and dev together leave nothing to learn from")
        Labels(labels=self.labels)
        return self
