"""Settings of the style model's evaluation."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from qinglan.config import Config, Fraction, Positive, Seed
from qinglan.evaluation.gates.gate_limits import refuse_impossible
from qinglan.evaluation.gates.style_gate import LIMITS, GateStyleConfig


class EvaluateStyleConfig(Config):
    """Evaluation of a style model on the locked test."""

    batch: Positive = 32
    """Texts per batch of the model."""

    baseline_c: tuple[Annotated[float, Field(gt=0)], ...] = Field(default=(1.0, 3.0, 10.0, 30.0), min_length=1)
    """Values of C, the inverse regularisation strength, to try for the baseline. The value with the best macro F1 on
    dev is used."""

    alike: Fraction = 0.8
    """Similarity (Jaccard of three-character pieces) from which test rows count as near-duplicates. The bootstrap
    draws near-duplicates together, since they are not independent."""

    called_for: Fraction = 0.5
    """Lowest P(harmless) at which a question, read without its answer, counts as calling for a protective answer."""

    harmless: Fraction = 0.5
    """Lowest P(harmless) of a question with its answer at which the answer counts as protective."""

    draws: Positive = 10_000
    """Number of draws of the bootstrap and of the permutation test."""

    seed: Seed = 0
    """Seed of the draws and of the sampled rows."""

    examples: Positive = 5
    """Number of example answers in the report for each case: only the model is right, only the baseline is right,
    both are wrong."""

    blind_rows: Positive = 60
    """Number of rows in the sheet that people label."""

    gate: GateStyleConfig = GateStyleConfig()
    """Conditions that the model must meet to be promoted."""

    @model_validator(mode="after")
    def _within_limits(self) -> Self:
        refuse_impossible(self, LIMITS)
        return self
