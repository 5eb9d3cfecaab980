"""A released ONNX graph reads nothing but itself: weights in other files and foreign operators are found anywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from qinglan.models.model_files import disallowed_files
from qinglan.models.onnx_graph import graph_fault


def graph_of(nodes: list[Any], initializers: list[Any] | None = None) -> Any:
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "small", [], outputs, initializers or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def small_graph() -> Any:
    """A graph that adds two constants: one is a tensor in an attribute."""
    bias = helper.make_tensor("bias", TensorProto.FLOAT, [2], [1.0, 2.0])
    value = helper.make_tensor("c", TensorProto.FLOAT, [2], [3.0, 4.0])
    nodes = [
        helper.make_node("Constant", [], ["chosen"], value=value),
        helper.make_node("Add", ["chosen", "bias"], ["out"]),
    ]
    return graph_of(nodes, [bias])


def elsewhere(tensor: Any) -> None:
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../../etc/passwd"


def in_an_attribute(model: Any) -> None:
    elsewhere(model.graph.node[0].attribute[0].t)


def only_named(model: Any) -> None:
    entry = model.graph.initializer[0].external_data.add()
    entry.key, entry.value = "location", "weights.bin"


def sparse(model: Any) -> None:
    elsewhere(model.graph.sparse_initializer.add().values)


def test_a_graph_that_stands_alone_is_allowed(tmp_path: Path) -> None:
    onnx.save(small_graph(), tmp_path / "model.int8.onnx")

    assert graph_fault((tmp_path / "model.int8.onnx").read_bytes()) == ""
    assert disallowed_files(tmp_path) == {}


@pytest.mark.parametrize(
    "change",
    [lambda model: elsewhere(model.graph.initializer[0]), in_an_attribute, only_named, sparse],
    ids=["initializer", "attribute", "named", "sparse"],
)
def test_weights_in_another_file_are_found_wherever_they_are(change: Callable[[Any], None], tmp_path: Path) -> None:
    model = small_graph()
    change(model)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())

    assert disallowed_files(tmp_path) == {"model.onnx": "its graph takes weights from another file"}


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


WITHOUT_END = {
    "a loop of 2^62 rounds": graph_of(
        [helper.make_node("Loop", ["rounds", "", "x"], ["out"], body=subgraph())], [numbers("rounds", 2**62)]
    ),
    "a scan": graph_of([helper.make_node("Scan", ["x"], ["out"], body=subgraph(), num_scan_inputs=1)]),
    "a branch": graph_of([helper.make_node("If", ["x"], ["out"], then_branch=subgraph(), else_branch=subgraph())]),
    "a map over a sequence": graph_of([helper.make_node("SequenceMap", ["x"], ["out"], body=subgraph())]),
    "a graph in a known operator": graph_of([helper.make_node("Add", ["x", "x"], ["out"], body=subgraph())]),
    "an operator without a name": graph_of([helper.make_node("", ["x"], ["out"])]),
    "text by regular expressions": graph_of([helper.make_node("RegexFullMatch", ["x"], ["out"], pattern="(a+)+$")]),
    "random numbers": graph_of([helper.make_node("RandomNormal", [], ["out"], shape=[1 << 40])]),
    "a range": graph_of([helper.make_node("Range", ["a", "b", "c"], ["out"])],
                        [numbers("a", 0), numbers("b", 2**62), numbers("c", 1)]),
    "a range downwards": graph_of([helper.make_node("Range", ["a", "b", "c"], ["out"])],
                                  [numbers("a", 0), numbers("b", -(2**62), raw=True), numbers("c", -1)]),
    "a shape": graph_of([helper.make_node("Expand", ["x", "shape"], ["out"])],
                        [numbers("shape", 1, 2**40, raw=True)]),
    "a shape in a constant": graph_of([
        helper.make_node("Constant", [], ["shape"], value=numbers("s", 2**40)),
        helper.make_node("ConstantOfShape", ["shape"], ["out"]),
    ]),
    "a shape as numbers": graph_of([
        helper.make_node("Constant", [], ["shape"], value_ints=[3, 2**33]),
        helper.make_node("Tile", ["x", "shape"], ["out"]),
    ]),
    "a shape as a number": graph_of([
        helper.make_node("Constant", [], ["shape"], value_int=2**33),
        helper.make_node("Expand", ["x", "shape"], ["out"]),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_END)
def test_a_graph_that_may_not_end_or_takes_all_memory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.onnx").write_bytes(WITHOUT_END[name].SerializeToString())

    assert disallowed_files(tmp_path)["model.onnx"].startswith("its graph ")


def test_a_graph_of_too_many_operators_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qinglan.models.onnx_graph.MAX_NODES", 1)

    assert "2 operators" in graph_fault(small_graph().SerializeToString())


def test_a_shape_of_an_exported_graph_is_allowed() -> None:
    shape = helper.make_node("Expand", ["x", "shape"], ["out"])

    assert graph_fault(graph_of([shape], [numbers("shape", -1, 64, raw=True)]).SerializeToString()) == ""


@pytest.mark.slow
@given(cut=st.integers(0, 400))
def test_a_file_that_is_cut_or_changed_never_raises(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    whole = small_graph().SerializeToString()
    path = tmp_path_factory.mktemp("cut") / "model.onnx"
    path.write_bytes(whole[: cut % len(whole)])
    assert isinstance(graph_fault(path.read_bytes()), str)
    path.write_bytes(whole + b"\xff")
    assert graph_fault(path.read_bytes()).startswith("no ONNX graph")
