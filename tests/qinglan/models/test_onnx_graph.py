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


def small_graph() -> Any:
    """A graph that adds a constant, chosen by a branch: it has nodes in attributes too."""
    bias = helper.make_tensor("bias", TensorProto.FLOAT, [2], [1.0, 2.0])
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    constant = helper.make_node(
        "Constant", [], ["y"], value=helper.make_tensor("c", TensorProto.FLOAT, [2], [3.0, 4.0])
    )
    branch = helper.make_graph([constant], "branch", [], [value])
    nodes = [
        helper.make_node("If", ["choice"], ["chosen"], then_branch=branch, else_branch=branch),
        helper.make_node("Add", ["chosen", "bias"], ["out"]),
    ]
    inputs = [helper.make_tensor_value_info("choice", TensorProto.BOOL, [])]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, [2])]
    graph = helper.make_graph(nodes, "small", inputs, outputs, [bias])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def elsewhere(tensor: Any) -> None:
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../../etc/passwd"


def in_a_branch(model: Any) -> None:
    elsewhere(model.graph.node[0].attribute[0].g.node[0].attribute[0].t)


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
    [lambda model: elsewhere(model.graph.initializer[0]), in_a_branch, only_named, sparse],
    ids=["initializer", "branch", "named", "sparse"],
)
def test_weights_in_another_file_are_found_wherever_they_are(change: Callable[[Any], None], tmp_path: Path) -> None:
    model = small_graph()
    change(model)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())

    assert disallowed_files(tmp_path) == {"model.onnx": "its graph takes weights from another file"}


def test_operators_of_a_library_are_refused(tmp_path: Path) -> None:
    imported, used = small_graph(), small_graph()
    imported.opset_import.append(helper.make_opsetid("my.library", 1))
    used.graph.node[0].attribute[0].g.node[0].domain = "my.library"
    for name, model in (("imported", imported), ("used", used)):
        (tmp_path / f"{name}.onnx").write_bytes(model.SerializeToString())

    assert set(disallowed_files(tmp_path)) == {"imported.onnx", "used.onnx"}
    assert "'my.library'" in graph_fault((tmp_path / "used.onnx").read_bytes())


def test_functions_are_refused(tmp_path: Path) -> None:
    model = small_graph()
    model.functions.add().name = "mine"
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())

    assert "functions of its own" in graph_fault((tmp_path / "model.onnx").read_bytes())


@pytest.mark.slow
@given(cut=st.integers(0, 400))
def test_a_file_that_is_cut_or_changed_never_raises(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    whole = small_graph().SerializeToString()
    path = tmp_path_factory.mktemp("cut") / "model.onnx"
    path.write_bytes(whole[: cut % len(whole)])
    assert isinstance(graph_fault(path.read_bytes()), str)
    path.write_bytes(whole + b"\xff")
    assert graph_fault(path.read_bytes()).startswith("no ONNX graph")
