"""The same questions and answers as tensors, for KServe's V2 protocol."""

from collections.abc import Sequence
from typing import Any

from kserve import InferRequest, InferResponse

from qinglan.style.predict import Prediction
from serving import tensors

INPUT_TENSORS: list[dict[str, Any]] = [{"name": "text", "datatype": "BYTES", "shape": [-1]}]


def output_tensors(labels: int) -> list[dict[str, Any]]:
    """Their names and shapes, as the model's metadata lists them."""
    return [
        {"name": "predicted_label", "datatype": "BYTES", "shape": [-1]},
        {"name": "confidence", "datatype": "FP64", "shape": [-1]},
        {"name": "probabilities", "datatype": "FP64", "shape": [-1, labels]},
        {"name": "labels", "datatype": "BYTES", "shape": [labels]},
    ]


def read_texts(request: InferRequest) -> list[str]:
    """The texts of the one input `text`, whatever its shape."""
    texts = tensors.read_texts(request, ["text"])["text"]
    tensors.check_text_count(len(texts))
    for number, text in enumerate(texts):
        tensors.check_text(text, f"inputs[0].data[{number}]")
    return texts


def infer_response(request: InferRequest, predictions: Sequence[Prediction], version: str) -> InferResponse:
    """One row for each text; the columns of `probabilities` are named by `labels`."""
    labels = list(predictions[0]["probabilities"])
    data: dict[str, list[Any]] = {
        "predicted_label": [prediction["predicted_label"] for prediction in predictions],
        "confidence": [prediction["confidence"] for prediction in predictions],
        "probabilities": [value for prediction in predictions for value in prediction["probabilities"].values()],
        "labels": labels,
    }
    return tensors.infer_response(request, version, output_tensors(len(labels)), data, len(predictions))
