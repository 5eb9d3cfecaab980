"""A style service's answers, parsed alike for every client.

POST /predict {"text"}                                  -> an answer
POST /v1/models/style:predict {"instances": [{"text"}]} -> {"predictions": [an answer for each]}
GET  /model                                             -> {"name", "sha256"}: which bytes answer
"""

from qinglan.config import Config, Fraction

STYLE_MODEL_PATH = "/model"


class StyleResponse(Config, extra="ignore"):
    """The answer for one text; further fields are ignored."""

    predicted_label: str = ""
    probabilities: dict[str, Fraction]
    model_version: str = ""


class _Predictions(Config, extra="ignore"):
    predictions: list[StyleResponse]


def read_style_response(content: bytes) -> StyleResponse:
    """The body of POST /predict; ValueError for anything else."""
    return StyleResponse.model_validate_json(content, strict=True)


def read_style_responses(content: bytes, texts: int) -> list[StyleResponse]:
    """The body of V1, one answer for each text; ValueError for anything else."""
    answers = _Predictions.model_validate_json(content, strict=True).predictions
    if len(answers) != texts:
        raise ValueError(f"{len(answers)} answers to {texts} texts")
    return answers
