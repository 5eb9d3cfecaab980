"""Parse a style service's answers, in the same way for every client.

POST /predict {"text"}                                  -> an answer
POST /v1/models/style:predict {"instances": [{"text"}]} -> {"predictions": [an answer for each]}
GET  /model                                             -> {"name", "sha256"}: the model that answers
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
    """Parse the body of an answer to POST /predict; a ValueError for anything else."""
    return StyleResponse.model_validate_json(content, strict=True)


def read_style_responses(content: bytes, texts: int) -> list[StyleResponse]:
    """Parse the body of an answer in the V1 protocol, with one answer for each text; a ValueError for anything
    else."""
    answers = _Predictions.model_validate_json(content, strict=True).predictions
    if len(answers) != texts:
        raise ValueError(f"{len(answers)} answers to {texts} texts")
    return answers
