"""Export the style model to one ONNX file with int8 weights, for a CPU without torch."""

import contextlib
import io
import tempfile
import warnings
from pathlib import Path
from typing import Any


def export_int8(folder: Path, target: Path) -> None:
    """Write the ONNX graph. Weights are int8 with a scale for each output channel; the other arithmetic is float."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    from qinglan.style.engines import open_torch
    from qinglan.style.labels import read_mapping

    model = open_torch(folder, len(read_mapping(folder).labels)).model.float().cpu()
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / "float.onnx"
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter prints each of its steps
            _export(model, whole)
        # An encoder has Gemm nodes, whose weights the quantiser transposes; its shape inference would then refuse the
        # graph for the noted shapes (seen with onnxruntime's quantize_dynamic on BERT).
        graph = onnx.load(whole)
        if any(node.op_type == "Gemm" for node in graph.graph.node):
            del graph.graph.value_info[:]
            onnx.save(graph, whole)
        quantize_dynamic(whole, target, weight_type=QuantType.QInt8, per_channel=True)
    # The exporter notes in each node the lines of code that it comes from, with this machine's paths. With these
    # notes, the same weights would give other bytes on another machine.
    quantised = onnx.load(target)
    graph = quantised.graph
    for part in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    onnx.save(quantised, target)


def _export(model: Any, target: Path) -> None:
    import torch

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits

    ids = torch.randint(1, model.config.vocab_size, (2, 16))
    shape = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    torch.onnx.export(
        Logits().eval(),
        (ids, torch.ones_like(ids)),
        target,
        dynamo=True,
        external_data=False,
        verbose=False,
        input_names=["input_ids", "attention_mask"],
        output_names=["logits"],
        dynamic_shapes={"input_ids": shape, "attention_mask": shape},
    )
