"""Settings of the style model's evaluation."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from qinglan.config import Config, Fraction, Positive, Seed
from qinglan.evaluation.gates.gate_limits import refuse_impossible
from qinglan.evaluation.gates.style_gate import LIMITS, GateStyleConfig


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
    """Draws of the bootstrap and of the permutation test."""

    seed: Seed = 0
    """Seed of draws and samples."""

    examples: Positive = 5
    """Answers shown for each way in which model and baseline differ or fail."""

    blind_rows: Positive = 60
    """Rows in the sheet that people label."""

    gate: GateStyleConfig = GateStyleConfig()
    """When a model may serve."""

    @model_validator(mode="after")
    def _within_limits(self) -> Self:
        refuse_impossible(self, LIMITS)
        return self
