"""The same questions and answers as tensors, for KServe's V2 protocol."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from kserve import InferOutput, InferRequest, InferResponse
from kserve.errors import InvalidInput

from qinglan.style.predict import Prediction
from serving.style.reading import bounded, check_text

INPUTS: list[dict[str, Any]] = [{"name": "text", "datatype": "BYTES", "shape": [-1]}]


def outputs(labels: int) -> list[dict[str, Any]]:
    """Their names and shapes, as the model's metadata lists them."""
    return [
        {"name": "predicted_label", "datatype": "BYTES", "shape": [-1]},
        {"name": "confidence", "datatype": "FP64", "shape": [-1]},
        {"name": "probabilities", "datatype": "FP64", "shape": [-1, labels]},
        {"name": "labels", "datatype": "BYTES", "shape": [labels]},
    ]


def texts(request: InferRequest) -> list[str]:
    """What the one input `text` holds, whatever its shape."""
    found = [tensor for tensor in request.inputs if tensor.name == "text" and tensor.datatype == "BYTES"]
    if len(request.inputs) != 1 or not found:
        raise InvalidInput('inputs: give one of datatype BYTES, named "text".')
    try:
        given = found[0].as_numpy().reshape(-1).tolist()
    except ValueError:
        raise InvalidInput("inputs[0]: shape and data do not fit each other.") from None
    bounded(len(given))
    for number, text in enumerate(given):
        check_text(text, f"inputs[0].data[{number}]")
    return list(given)


def answer(request: InferRequest, found: Sequence[Prediction], version: str) -> InferResponse:
    """One row for each text; the columns of `probabilities` are named by `labels`."""
    labels = list(found[0]["probabilities"])
    data: dict[str, list[Any]] = {
        "predicted_label": [one["predicted_label"] for one in found],
        "confidence": [one["confidence"] for one in found],
        "probabilities": [value for one in found for value in one["probabilities"].values()],
        "labels": labels,
    }
    tensors = [
        InferOutput(
            name=kind["name"], datatype=kind["datatype"], data=data[kind["name"]],
            shape=[len(found) if size == -1 else size for size in kind["shape"]],
        )
        for kind in outputs(len(labels))
    ]  # fmt: skip
    return InferResponse(
        response_id=request.id or str(uuid4()), model_name=request.model_name, model_version=version,
        infer_outputs=tensors, requested_outputs=request.request_outputs,
        use_binary_outputs=request.use_binary_outputs,
    )  # fmt: skip
