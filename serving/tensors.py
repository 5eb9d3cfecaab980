"""Read and write texts as tensors of KServe's V2 protocol. Errors never repeat the text of a request."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from kserve import InferOutput, InferRequest, InferResponse
from kserve.errors import InvalidInput

MOST_INSTANCES = 256


def read_texts(request: InferRequest, names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the texts of the inputs by name; an input may have any shape. An input that is not in `names`, or not of
    datatype BYTES, is refused."""
    inputs = {tensor.name: tensor for tensor in request.inputs}
    usable = set(inputs) <= set(names) and all(tensor.datatype == "BYTES" for tensor in request.inputs)
    if len(inputs) != len(request.inputs) or not inputs or not usable:
        expected, quoted = "one" if len(names) == 1 else "each once", ", ".join(f'"{name}"' for name in names)
        raise InvalidInput(f"inputs: give {expected} of datatype BYTES, named {quoted}.")
    texts: dict[str, list[Any]] = {}
    for number, tensor in enumerate(request.inputs):
        try:
            texts[tensor.name] = list(tensor.as_numpy().reshape(-1).tolist())
        except ValueError as error:
            raise InvalidInput(f"inputs[{number}]: shape and data do not fit each other.") from error
    return texts


def infer_response(
    request: InferRequest, version: str, kinds: Sequence[Mapping[str, Any]], data: Mapping[str, list[Any]], rows: int
) -> InferResponse:
    """Build an answer with one output for each of `kinds`; -1 in a shape stands for the number of rows."""
    tensors = [
        InferOutput(
            name=kind["name"],
            datatype=kind["datatype"],
            data=data[kind["name"]],
            shape=[rows if size == -1 else size for size in kind["shape"]],
        )
        for kind in kinds
    ]
    return InferResponse(
        response_id=request.id or str(uuid4()),
        model_name=request.model_name,
        model_version=version,
        infer_outputs=tensors,
        requested_outputs=request.request_outputs,
        use_binary_outputs=request.use_binary_outputs,
    )


def check_text(value: Any, where: str, empty: bool = False) -> None:
    if not isinstance(value, str):
        raise InvalidInput(f"{where}: not a text.")
    if not value.strip() and not empty:
        raise InvalidInput(f"{where}: empty.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{where}: half a character (an unpaired surrogate).") from error


def check_text_count(texts: int) -> None:
    if not 0 < texts <= MOST_INSTANCES:
        raise InvalidInput(f"{texts} texts: send 1 to {MOST_INSTANCES} at once.")
