"""Engines that run a style model's weights: torch, or onnxruntime with int8 weights on a CPU."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from qinglan.errors import DataError
from qinglan.files.plain_files import read_plain
from qinglan.models.onnx.onnx_graph import graph_fault
from qinglan.models.own_memory import copy_to_memory
from qinglan.models.whole_model import load_whole

TokenIds = list[int]

CPU_TOKENS = 2048
"""Largest number of tokens in a batch on a CPU. In a larger batch, activations do not fit into the CPU's caches, and
a token takes longer than in a batch of one text."""

GPU_TOKENS = 32_768


class InferenceEngine(Protocol):
    """A model in memory. A call takes the token ids of some texts and returns a row of logits for each text."""

    @property
    def most_tokens(self) -> int:
        """Largest number of tokens in a batch, including padding; a single text may have more."""

    def __call__(self, ids: Sequence[TokenIds]) -> NDArray[np.float32]: ...


class TorchEngine:
    """Run a transformers model that classifies."""

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        self.most_tokens = CPU_TOKENS if model.device.type == "cpu" else GPU_TOKENS

    def __call__(self, ids: Sequence[TokenIds]) -> NDArray[np.float32]:
        import torch

        padded, mask = pad(ids, self.model.config.pad_token_id)
        device = self.model.device
        with torch.inference_mode():
            out = self.model(
                input_ids=torch.from_numpy(padded).to(device), attention_mask=torch.from_numpy(mask).to(device)
            )
        return np.asarray(out.logits.float().cpu().numpy())


class OnnxEngine:
    """Run an exported ONNX graph on a CPU."""

    most_tokens = CPU_TOKENS

    def __init__(self, session: Any) -> None:
        self._session = session

    def __call__(self, ids: Sequence[TokenIds]) -> NDArray[np.float32]:
        logits = []
        # One text at a time: a dynamically quantised graph takes the scale of its activations from the whole batch
        # (ONNX operator DynamicQuantizeLinear), so an answer would depend on the other texts.
        for row in ids:
            tokens = np.asarray([row], dtype=np.int64)
            logits.append(self._session.run(None, {"input_ids": tokens, "attention_mask": np.ones_like(tokens)})[0])
        return np.concatenate(logits)


def pad(ids: Sequence[TokenIds], pad_token_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ids and mask, padded on the right to the longest row."""
    longest = max(map(len, ids))
    padded = np.full((len(ids), longest), pad_token_id, dtype=np.int64)
    mask = np.zeros((len(ids), longest), dtype=np.int64)
    for at, row in enumerate(ids):
        padded[at, : len(row)], mask[at, : len(row)] = row, 1
    return padded, mask


def open_torch(folder: Path, labels: int) -> TorchEngine:
    """Load the folder's weights: in bfloat16 on a GPU if there is one, else in float32 on the CPU."""
    import torch
    from transformers import AutoModelForSequenceClassification

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = load_whole(AutoModelForSequenceClassification, folder, dtype=dtype)
    if model.config.num_labels != labels:
        raise DataError(f"{folder}: the weights know {model.config.num_labels} labels, the mapping {labels}.")
    return TorchEngine(copy_to_memory(model.to(device)))


def open_onnx(path: Path, labels: int) -> OnnxEngine:
    """Load the exported graph. It runs on one thread, since a server's batches keep all cores busy."""
    import onnxruntime as runtime

    if not path.is_file():
        raise DataError(f"{path}: no such file. The distil stage exports it; take the torch engine without it.")
    # The session gets bytes that were read once and checked. From a path, onnxruntime would also map the external
    # files that a graph names for its weights (https://onnx.ai/onnx/repo-docs/ExternalData.html).
    graph = read_plain(path)
    if fault := graph_fault(graph):
        raise DataError(f"{path}: {fault}. Export it again: the distil stage does that.")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        session = runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no type
        raise DataError(f"{path}: not an ONNX graph that runs here ({str(error)[:200]}).") from error
    if (outputs := session.get_outputs()[0].shape[-1]) != labels:
        raise DataError(f"{path}: the graph knows {outputs} labels, the mapping {labels}.")
    return OnnxEngine(session)
