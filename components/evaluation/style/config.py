"""What the style evaluation and its gate can be told."""

from typing import Annotated

from pydantic import Field

from qinglan.config import Config, Fraction, Positive


class GateStyleConfig(Config):
    """What a style model must show before it may serve. Whatever cannot be read holds it."""

    rows: Positive = 200
    """Fewer test rows prove nothing: at 200 an accuracy of 90 % is uncertain by 4 points."""

    class_rows: Positive = 10
    """Test rows of each label, at least."""

    p: Fraction = 0.05
    """The permutation test's p of model against baseline in macro F1 must be below."""

    class_margin: Fraction = 0.05
    """By so much a label's F1 may at most be below the baseline's, as points: intervals of one label are too wide."""

    alike: float = Field(default=0.8, gt=0, le=1)
    """A test row so like one of train, dev or the unlabelled texts leaked (three-character pieces)."""

    ece: Fraction = 0.05
    """The expected calibration error, at most."""

    ece_worse: Fraction = 0.01
    """By so much the temperature may at most raise the test's calibration error: near 1 it moves it by chance."""


class EvaluateStyleConfig(Config):
    """How a style model is judged on the locked test."""

    batch: Positive = 32
    """Texts that the model reads at once."""

    baseline_c: tuple[Annotated[float, Field(gt=0)], ...] = Field(default=(1.0, 3.0, 10.0, 30.0), min_length=1)
    """The baseline's inverse regularisation: the one with the best macro F1 on dev is taken."""

    alike: Fraction = 0.8
    """Test rows with so much in common (three-character pieces, Jaccard) are drawn together: not independent."""

    called_for: Fraction = 0.5
    """A question alone with at least so much P(harmless) calls for protection."""

    harmless: Fraction = 0.5
    """An answer with less P(harmless) does not protect."""

    draws: Positive = 10_000
    """Of the bootstrap and of the permutation test."""

    seed: int = 0
    """Of draws and samples."""

    examples: Positive = 5
    """Answers shown for each way in which model and baseline differ or fail."""

    blind_rows: Positive = 60
    """Rows in the sheet that people label."""

    gate: GateStyleConfig = GateStyleConfig()
    """When a model may serve."""
