"""Read texts of requests and build answers in three protocols. Errors never repeat the text of a request."""

from collections.abc import Sequence
from typing import Any

from kserve import InferRequest, InferResponse
from kserve.errors import InvalidInput

from qinglan.style.labels import format_training_text
from qinglan.style.predict import Prediction
from serving import tensors

FORMS = ({"text"}, {"question", "answer"})
INPUT_TENSORS: list[dict[str, Any]] = [{"name": "text", "datatype": "BYTES", "shape": [-1]}]


def output_tensors(labels: int) -> list[dict[str, Any]]:
    return [
        {"name": "predicted_label", "datatype": "BYTES", "shape": [-1]},
        {"name": "confidence", "datatype": "FP64", "shape": [-1]},
        {"name": "probabilities", "datatype": "FP64", "shape": [-1, labels]},
        {"name": "labels", "datatype": "BYTES", "shape": [labels]},
    ]


def read_v1(payload: Any) -> list[str]:
    instances = payload.get("instances") if isinstance(payload, dict) else None
    if not isinstance(instances, list):
        raise InvalidInput('Send application/json: {"instances": [{"text": "..."}]}.')
    tensors.check_text_count(len(instances))
    return [read_instance(values, f"instances[{number}]") for number, values in enumerate(instances)]


def read_instance(values: Any, where: str) -> str:
    """Read a text, or question and answer in the format of the training texts. Only the answer may be empty."""
    if not isinstance(values, dict) or set(values) not in FORMS:
        raise InvalidInput(f'{where}: give {{"text"}}, or {{"question", "answer"}}, and nothing else.')
    for field, value in values.items():
        tensors.check_text(value, f"{where}.{field}", empty=field == "answer")
    return values["text"] if "text" in values else format_training_text(values["question"], values["answer"])


def read_v2(request: InferRequest) -> list[str]:
    """Read the texts of a V2 request, from its only input `text` of any shape."""
    texts = tensors.read_texts(request, ["text"])["text"]
    tensors.check_text_count(len(texts))
    for number, text in enumerate(texts):
        tensors.check_text(text, f"inputs[0].data[{number}]")
    return texts


def answer_v2(request: InferRequest, predictions: Sequence[Prediction], version: str) -> InferResponse:
    """Build the V2 answer, with one row for each text. `labels` names the columns of `probabilities`."""
    labels = list(predictions[0]["probabilities"])
    data: dict[str, list[Any]] = {
        "predicted_label": [prediction["predicted_label"] for prediction in predictions],
        "confidence": [prediction["confidence"] for prediction in predictions],
        "probabilities": [value for prediction in predictions for value in prediction["probabilities"].values()],
        "labels": labels,
    }
    return tensors.infer_response(request, version, output_tensors(len(labels)), data, len(predictions))
