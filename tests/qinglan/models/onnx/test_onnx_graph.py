"""A released ONNX graph reads nothing but itself, and its work is bounded."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from components.training.style.export import export_int8
from qinglan.models.model_files import disallowed_files
from qinglan.models.onnx.onnx_graph import graph_fault
from qinglan.models.onnx.onnx_work import RULES, Inputs, Node, Tensor
from tests.models.tiny_style import tiny_style_model


def graph_of(nodes: list[Any], initializers: list[Any] | None = None) -> Any:
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "small", [], outputs, initializers or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def small_graph() -> Any:
    """A graph that adds two weights."""
    weights = [helper.make_tensor(name, TensorProto.FLOAT, [2], [1.0, 2.0]) for name in ("bias", "chosen")]
    return graph_of([node("Add", "chosen bias", "out")], weights)


def node(operator: str, inputs: str, outputs: str = "out", **attributes: Any) -> Any:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def elsewhere(tensor: Any) -> None:
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../../etc/passwd"


def test_a_graph_that_stands_alone_is_allowed(tmp_path: Path) -> None:
    onnx.save(small_graph(), tmp_path / "model.int8.onnx")

    assert graph_fault((tmp_path / "model.int8.onnx").read_bytes()) == ""
    assert disallowed_files(tmp_path) == {}


def test_weights_in_another_file_are_refused() -> None:
    model = small_graph()
    elsewhere(model.graph.initializer[0])

    assert graph_fault(model.SerializeToString()) == "its graph takes weights from another file"


def test_operators_of_a_library_are_refused(tmp_path: Path) -> None:
    imported, used = small_graph(), small_graph()
    imported.opset_import.append(helper.make_opsetid("my.library", 1))
    used.graph.node[0].domain = "my.library"
    for name, model in (("imported", imported), ("used", used)):
        (tmp_path / f"{name}.onnx").write_bytes(model.SerializeToString())

    assert set(disallowed_files(tmp_path)) == {"imported.onnx", "used.onnx"}
    assert "'my.library'" in graph_fault((tmp_path / "used.onnx").read_bytes())


def test_functions_are_refused(tmp_path: Path) -> None:
    model = small_graph()
    model.functions.add().name = "mine"
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())

    assert "functions of its own" in graph_fault((tmp_path / "model.onnx").read_bytes())


def subgraph() -> Any:
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    return helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "body", [], [value])


def numbers(name: str, *values: int, raw: bool = False) -> Any:
    data = b"".join(value.to_bytes(8, "little", signed=True) for value in values) if raw else values
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], data, raw)


def vector(name: str, values: int) -> Any:
    return helper.make_tensor(name, TensorProto.FLOAT, [values], bytes(4 * values), raw=True)


BIG = 1 << 20
SIZES = [numbers("a", 0), numbers("b", 1), numbers("c", 2), numbers("all", -1)]
ROW, COLUMN = node("Expand", "bias row", "r"), node("Expand", "bias column", "k")
SQUARE = [node("Expand", "bias square", "m0"), *(node("MatMul", f"m{n} m{n}", f"m{n + 1}") for n in range(400))]
LENGTH = [node("Shape", "input_ids", "s"), node("Slice", "s b c", "length")]
WORDS = node("ArgMax", "input_ids", "words", axis=1, keepdims=0)
TENSOR = helper.make_tensor("t", TensorProto.FLOAT, [2], [3.0, 4.0])
SCALARS = [helper.make_tensor(name, TensorProto.INT64, [], [value]) for name, value in
           (("zero", 0), ("one", 1), ("many", 2**62), ("few", -(2**62)), ("minus", -1))]  # fmt: skip

WITHOUT_BOUND: dict[str, tuple[list[Any], list[Any], str]] = {
    "a loop of 2^62 rounds": ([node("Loop", "many bias bias", body=subgraph())], SCALARS, "in an attribute"),
    "a graph in a known operator": ([node("Add", "bias bias", body=subgraph())], [], "in an attribute"),
    "a tensor in an attribute": ([node("Constant", "", value=TENSOR)], [], "in an attribute"),
    "numbers of its own": ([node("Constant", "", value_ints=[3, 2**33])], [], "operator 'Constant'"),
    "an operator without a name": ([node("", "bias")], [], "operator ''"),
    "a tensor of a shape": ([node("ConstantOfShape", "s")], [numbers("s", BIG, 1500)], "'ConstantOfShape'"),
    "a range": ([node("Range", "zero many one")], SCALARS, "numbers at once"),
    "a range without a step": ([node("Range", "one many zero")], SCALARS, "zero"),
    "a shape": ([node("Expand", "bias s")], [numbers("s", 2**40, 2, raw=True)], "numbers at once"),
    "a shape of small numbers": ([node("Expand", "bias s")], [numbers("s", BIG, 750, 2)], "numbers at once"),
    "tiles of tiles": ([node("Expand", "bias s", "x"), node("Expand", "x s2")],
                       [numbers("s", 1 << 15, 2), numbers("s2", 1 << 14, 1 << 15, 2)], "numbers at once"),
    "a row times a column": ([ROW, COLUMN, node("MatMul", "k r")],
                             [numbers("row", 1, 30_000), numbers("column", 30_000, 1), vector("bias", 1)],
                             "numbers at once"),
    "400 squares": (SQUARE, [numbers("square", 2_000, 2_000), vector("bias", 1)], "multiplications"),
    "many large tensors at once": (
        [*(node("Expand", "bias s", f"t{n}") for n in range(99)),
         *(node("Abs", f"t{n}", f"u{n}") for n in range(99))],
        [numbers("s", BIG, 2)], "numbers at once"),
    "many large tensors one by one": ([node("Expand", "bias s", f"t{n}") for n in range(9_999)],
                                      [numbers("s", BIG, 2)], "multiplications"),
    "the length to the fourth": (
        [*LENGTH, node("Concat", "length length length length", "s4", axis=0), node("Expand", "one s4")],
        [*SIZES, *SCALARS], "numbers at once for a text of 128"),
    "a size from the words": ([WORDS, node("Expand", "bias words")], [], "from the words of a text"),
    "a length from the words": ([node("Squeeze", "input_ids", "w"), node("Range", "zero w one")], SCALARS,
                                "from the words of a text"),
    "a size by arithmetic": ([*LENGTH, node("Mul", "length length", "l2"), node("Expand", "bias l2")], SIZES,
                             "from the words of a text"),
    "a size as a fraction": ([node("Cast", "s", "f", to=1), node("Cast", "f", "t", to=7), node("Expand", "bias t")],
                             [numbers("s", 2)], "from the words of a text"),
    "a step of the length": ([*LENGTH, node("Slice", "bias a c a length")], SIZES, "a start or a step"),
    "a range from the length": ([*LENGTH, node("Squeeze", "length", "n"), node("Range", "n many one")],
                                [*SIZES, *SCALARS], "a start or a step"),
    "an axis from the words": ([WORDS, node("Unsqueeze", "bias words")], [], "an axis"),
    "the length below a large number": (
        [*LENGTH, node("Concat", "all length", "s2", axis=0), node("Reshape", "table s2", "x"),
         node("Slice", "x a b b", "column"), node("Transpose", "column", "row", perm=[1, 0]),
         node("MatMul", "column row")],
        [*SIZES, helper.make_tensor("table", TensorProto.INT8, [1 << 16], bytes(1 << 16), raw=True)],
        "numbers at once for a text of 1 "),
    "a negative size": ([node("Reshape", "bias s")], [numbers("s", -2, -1)], "negative size"),
    "batches": ([node("GatherND", "input_ids input_ids", batch_dims=1)], [], "by batches"),
    "axes that are none": ([node("Transpose", "input_ids", perm=[0, 0])], [], "orders axes"),
    "vectors as matrices": ([node("MatMul", "bias bias")], [], "matrices that are none"),
    "an input of another name": ([node("Abs", "pixels")], [], "reads .pixels"),
    "a tensor before it is made": ([node("Abs", "later"), node("Abs", "bias", "later")], [], "reads .later"),
    "a tensor that is made twice": ([node("Abs", "bias"), node("Abs", "bias")], [], "other outputs"),
    "more outputs": ([node("Abs", "bias", "out more")], [], "other outputs"),
    "two weights of one name": ([node("Abs", "bias")], [numbers("bias", 2), numbers("bias", 2**40)], "of one name"),
    "too many operators": ([node("Abs", "bias", f"t{n}") for n in range(20_001)], [], "20,001 operators"),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_BOUND)
def test_a_graph_that_may_not_end_or_takes_all_memory_is_refused(tmp_path: Path, name: str) -> None:
    nodes, weights, why = WITHOUT_BOUND[name]
    bias = [] if any(tensor.name == "bias" for tensor in weights) else [vector("bias", 2)]
    (tmp_path / "model.onnx").write_bytes(graph_of(nodes, [*weights, *bias]).SerializeToString())

    assert re.search(why, disallowed_files(tmp_path)["model.onnx"])


def test_an_attribute_that_is_there_twice_is_refused() -> None:
    graph = graph_of([node("Concat", "bias bias", axis=0)], [vector("bias", 2)])
    graph.graph.node[0].attribute.append(helper.make_attribute("axis", 1))

    assert "two attributes 'axis'" in graph_fault(graph.SerializeToString())


def test_sparse_weights_are_refused() -> None:
    graph = small_graph()
    graph.graph.sparse_initializer.add()

    assert "sparse weights" in graph_fault(graph.SerializeToString())


def test_a_shape_of_an_exported_graph_is_allowed() -> None:
    shape = node("Expand", "bias shape")

    weights = [numbers("shape", -1, 64, raw=True), helper.make_tensor("bias", TensorProto.FLOAT, [2, 1], [1.0, 2.0])]
    assert graph_fault(graph_of([shape], weights).SerializeToString()) == ""


@pytest.mark.slow
def test_the_shapes_of_an_exported_graph_are_those_that_the_runtime_has(tmp_path: Path) -> None:
    folder = tiny_style_model(tmp_path / "model")
    export_int8(folder, folder / "model.onnx")
    model = onnx.load(folder / "model.onnx")

    assert graph_fault((folder / "model.onnx").read_bytes()) == ""
    for length in (1, 7):
        for name, (computed, real) in shapes_of(model, length).items():
            assert computed == real, name


def shapes_of(model: Any, length: int) -> dict[str, tuple[Any, Any]]:
    """The shape of each tensor as it is computed here, and as onnxruntime makes it."""
    import onnxruntime as runtime

    nodes = [Node(item.op_type, item.input, item.output,
                  {at.name: at.ints or [at.i] for at in item.attribute}) for item in model.graph.node]  # fmt: skip
    arrays = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer}
    constants = {name: Tensor(array.shape, tuple(map(int, array.flat)) if array.dtype.kind == "i" and array.size < 65
                              else None) for name, array in arrays.items()}  # fmt: skip
    tensors = {**constants, **dict.fromkeys(("input_ids", "attention_mask"), Tensor((1, length)))}
    for item in nodes:
        tensors |= zip(item.outputs, RULES[item.operator](Inputs(item, tensors, constants)), strict=False)
    names = [name for item in nodes for name in item.outputs]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(model.SerializeToString(), options)
    ids = np.ones((1, length), dtype=np.int64)
    real = session.run(names, {"input_ids": ids, "attention_mask": ids})
    return {name: (tensors[name].shape, array.shape) for name, array in zip(names, real, strict=True)}


@pytest.mark.slow
@given(cut=st.integers(0, 400))
def test_a_file_that_is_cut_or_changed_never_raises(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    whole = small_graph().SerializeToString()
    path = tmp_path_factory.mktemp("cut") / "model.onnx"
    path.write_bytes(whole[: cut % len(whole)])
    assert isinstance(graph_fault(path.read_bytes()), str)
    path.write_bytes(whole + b"\xff")
    assert graph_fault(path.read_bytes()).startswith("no ONNX graph")
