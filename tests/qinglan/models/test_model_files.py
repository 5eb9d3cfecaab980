"""A model's folder holds what it says; safetensors are parsed to the last byte and never loaded."""

import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qinglan.errors import DataError
from qinglan.files.plain_files import plain_files
from qinglan.models.model_files import disallowed_files, disallowed_reason, refuse_disallowed_files
from qinglan.models.safetensors_header import read_header
from tests.releases.registered_release import tiny_weights

GOOD: dict[str, Any] = {
    "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
    "b": {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]},
    "none": {"dtype": "I64", "shape": [0, 4], "data_offsets": [22, 22]},
    "__metadata__": {"format": "pt"},
}


def weights(path: Path, header: Any = GOOD, data: int = 22, padding: bytes = b"  ") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode() + padding
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))
    return path


def other(name: str, **values: Any) -> dict[str, Any]:
    return {**GOOD, name: {**GOOD.get(name, {}), **values}}


def test_a_header_tells_each_tensor_in_the_files_order(tmp_path: Path) -> None:
    tensors = read_header(weights(tmp_path / "w.safetensors"))

    assert [(tensor.name, tensor.dtype, tensor.shape, tensor.elements) for tensor in tensors] == [
        ("a", "F32", (2, 2), 4), ("b", "BF16", (3,), 3), ("none", "I64", (0, 4), 0),
    ]  # fmt: skip


def test_every_dtype_that_the_library_writes_is_known(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    names = (
        "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "uint16",
        "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "complex64",
    )  # fmt: skip
    for name in names:
        path = tmp_path / f"{name}.safetensors"
        save_file({"x": torch.zeros(4, 2, dtype=getattr(torch, name))}, path, {"format": "pt"})
        assert read_header(path)[0].elements == 8


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        (GOOD, 23, "do not cover its 23 bytes"),
        (other("a", data_offsets=[1, 17]), 23, "do not cover"),
        (other("b", data_offsets=[15, 21]), 21, "overlap"),
        (other("b", data_offsets=[18, 24]), 24, "do not cover"),
        (other("a", dtype="F31"), 22, "unknown dtype"),
        (other("a", shape=[2, 3]), 22, "does not take 16 bytes"),
        (other("a", shape=[-2, -2]), 22, "no counts"),
        (other("a", shape=[True, 4]), 22, "no counts"),
        (other("a", data_offsets=[0, 16, 16]), 22, "no counts"),
        (other("a", data_offsets=[16, 0]), 22, "does not take"),
        (other("a", more=1), 22, "not just"),
        ({**GOOD, "a": []}, 22, "not just"),
        ({**GOOD, "__metadata__": {"x": 1}}, 22, "more than texts"),
        ({**GOOD, "c\0": {"dtype": "U8", "shape": [0], "data_offsets": [22, 22]}}, 22, "a tensor is named"),
        ({**GOOD, "": {"dtype": "U8", "shape": [0], "data_offsets": [22, 22]}}, 22, "a tensor is named"),
        ({**GOOD, "c" * 501: {"dtype": "U8", "shape": [0], "data_offsets": [22, 22]}}, 22, "a tensor is named"),
        (b'{"a": 1, "a": 2}', 0, "there twice"),
        (b"[1]", 0, "does not begin with {"),
        (b" {}", 0, "does not begin with {"),
        (b"{\xff}", 0, "no safetensors header"),
        (b"{" * 9_000, 0, "no safetensors header"),
        (b'{"a": {"dtype": "U8", "shape": [' + b"9" * 5000 + b'], "data_offsets": [0, 1]}}', 1, "header"),
    ],
)
def test_a_header_that_is_not_the_whole_truth_is_refused(
    tmp_path: Path, header: Any, data: int, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_header(weights(tmp_path / "w.safetensors", header, data))


@pytest.mark.parametrize("content", [b"", b"1234567", struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", 9) + b"{}"])
def test_a_length_that_cannot_be_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w.safetensors").write_bytes(content)

    with pytest.raises(DataError, match="no safetensors: a header of"):
        read_header(tmp_path / "w.safetensors")


def test_a_length_may_begin_like_a_pickle(tmp_path: Path) -> None:
    padding = b" " * (0x280 - len(json.dumps(GOOD)))
    path = weights(tmp_path / "w.safetensors", padding=padding)

    assert path.read_bytes()[:2] == b"\x80\x02"
    assert read_header(path) and disallowed_reason("w.safetensors", path) == ""


class Evil:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("true",)


@pytest.mark.parametrize(
    "name", ["w.safetensors", "vocab.json", "merges.txt", "x.jinja", "tokenizer.model", "LICENSE"]
)
@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_is_refused_whatever_it_is_called(tmp_path: Path, name: str, protocol: int) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Evil(), protocol))

    assert name in disallowed_files(tmp_path)
    with pytest.raises(DataError, match="take that file out"):
        refuse_disallowed_files(tmp_path)


def test_files_saved_by_torch_and_numpy_are_refused_under_any_name(tmp_path: Path) -> None:
    import numpy as np
    import torch

    torch.save({"x": torch.zeros(2)}, tmp_path / "zip.txt")
    torch.save({"x": torch.zeros(2)}, tmp_path / "legacy.txt", _use_new_zipfile_serialization=False)
    with (tmp_path / "array.txt").open("wb") as file:
        np.save(file, np.array([{}], dtype=object))

    assert set(disallowed_files(tmp_path)) == {"zip.txt", "legacy.txt", "array.txt"}


@pytest.mark.parametrize(
    "ending", [".py", ".bin", ".pt", ".PT", ".pth", ".ckpt", ".pkl", ".npy", ".onnx", ".so", "", ".json.gz", ".h5"]
)
def test_a_file_that_no_release_needs_is_refused_by_its_name(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"a{ending}").write_text("{}")

    assert list(disallowed_files(tmp_path)) == [f"a{ending}"]


def test_the_files_of_a_tokenizer_are_allowed(tmp_path: Path) -> None:
    folder = tiny_weights(tmp_path / "model")
    (folder / "merges.txt").write_text("#version: 0.2\nĠ t\n的 人\n", encoding="utf-8")
    (folder / "vocab.txt").write_text(".\n(\n0\nN\nR\n", encoding="utf-8")
    (folder / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02")
    (folder / "LICENSE").write_text("Apache License")
    (folder / "sub").mkdir()
    (folder / "sub" / "config.json").write_text("{}")

    assert disallowed_files(folder) == {}
    refuse_disallowed_files(folder)


def test_links_devices_hidden_and_hollow_things_are_named_and_nothing_is_opened(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "link.json").symlink_to(tmp_path / "a.json")
    (tmp_path / "there").symlink_to("/")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "empty").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "x.json").write_text("{}")

    result = plain_files(tmp_path)

    assert set(result.faults) == {"link.json", "there", "pipe.json", "empty", ".hidden"}
    assert set(result.files) == {"a.json", ".hidden/x.json"}
