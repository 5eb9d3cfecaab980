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
    """Inverse regularisation of the baseline, to try; the value with the best macro F1 on dev is taken."""

    alike: Fraction = 0.8
    """Similarity (Jaccard of three-character pieces) from which test rows are drawn together: they are not
    independent."""

    called_for: Fraction = 0.5
    """P(harmless) of a question without its answer from which it calls for protection."""

    harmless: Fraction = 0.5
    """P(harmless) of question and answer below which the answer counts as unprotected."""

    draws: Positive = 10_000
    """Draws of the bootstrap and of the permutation test."""

    seed: Seed = 0
    """Seed of draws and samples."""

    examples: Positive = 5
    """Answers on the page for each way in which model and baseline differ or fail."""

    blind_rows: Positive = 60
    """Rows in the sheet that people label."""

    gate: GateStyleConfig = GateStyleConfig()
    """Conditions of a promotion."""

    @model_validator(mode="after")
    def _within_limits(self) -> Self:
        refuse_impossible(self, LIMITS)
        return self
