"""Parse a safetensors file without loading it: its header must describe the whole file, to the byte.

    tensors = read_header(path)         # raises a DataError if the file is malformed

A pickle with the ending .safetensors has no such header. If a program is appended to the file, its bytes belong to no
tensor. The format: https://github.com/huggingface/safetensors#format
"""

from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.documents import parse_json_mapping
from qinglan.errors import DataError
from qinglan.files.plain_files import open_plain
from qinglan.terminal import visible

LENGTH, LARGEST = 8, 100_000_000
"""Size in bytes of the file's first number, which is the header's length; and the largest header, in bytes, that the
format allows."""

LONGEST_NAME = 500
"""Largest number of characters of a tensor's name; names in transformers have up to some 80."""

BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
"""Number of bits of one element, by dtype."""


class Tensor(NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int
    """Offset of the end of the tensor's bytes. Like `begin`, it counts from the end of the header."""

    @property
    def elements(self) -> int:
        return prod(self.shape)


def read_header(path: Path) -> list[Tensor]:
    """Return a file's tensors in their order; raises a DataError if the file holds any other bytes."""
    length, tensors = _read(path)
    size = path.stat().st_size - LENGTH - length
    edges = [0, *(edge for tensor in tensors for edge in (tensor.begin, tensor.end)), size]
    # Pairs of an end and the next begin. The first pair is 0 and the first begin; the last is the last end and size.
    if any(end != begin for end, begin in list(pairwise(edges))[::2]):
        raise DataError(
            f"{path}: its tensors do not cover its {size:,} bytes one after another: some overlap, or there are "
            "bytes that no tensor has."
        )
    return tensors


def declared_size(path: Path) -> int:
    """Return the size in bytes that a file should have according to its header; a truncated file is smaller."""
    length, tensors = _read(path)
    return LENGTH + length + max((tensor.end for tensor in tensors), default=0)


def count_parameters(model: Path) -> int:
    return sum(tensor.elements for path in sorted(model.glob("*.safetensors")) for tensor in read_header(path))


def _read(path: Path) -> tuple[int, list[Tensor]]:
    """Return the header's length in bytes, and the tensors sorted by the position of their bytes."""
    try:
        size = path.stat().st_size
        with open_plain(path) as file:
            length = int.from_bytes(file.read(LENGTH), "little")
            if not 2 <= length <= min(LARGEST, size - LENGTH):
                raise DataError(f"{path}: no safetensors: a header of {length:,} bytes in a file of {size:,}.")
            tensors = sorted(_tensors(file.read(length), path), key=lambda tensor: (tensor.begin, tensor.end))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error
    return length, tensors


def _tensors(header: bytes, path: Path) -> list[Tensor]:
    try:
        if not header.startswith(b"{"):
            raise ValueError("it does not begin with {")
        entries = parse_json_mapping(header, f"{path}: no safetensors header")
        metadata = entries.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise ValueError("__metadata__ is more than texts by name")
        return [_tensor(name, description) for name, description in entries.items()]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"{path}: no safetensors header: {str(error)[:200]}.") from error


def _tensor(name: str, description: Any) -> Tensor:
    if not isinstance(description, dict) or set(description) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name} has not just dtype, shape and data_offsets")
    if not name or not name.isprintable() or len(name) > LONGEST_NAME:
        raise ValueError(f"a tensor is named {visible(name[:80])!r}")
    dtype, shape, offsets = description["dtype"], description["shape"], description["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise ValueError(f"{name} has an unknown dtype {dtype!r}")
    if not _counts(shape) or not _counts(offsets) or len(offsets) != 2:
        raise ValueError(f"{name} has a shape or offsets that are no counts")
    tensor = Tensor(name, dtype, tuple(shape), *offsets)
    if tensor.elements * BITS[dtype] != (tensor.end - tensor.begin) * 8:
        raise ValueError(f"{name}: {dtype} of shape {shape} does not take {tensor.end - tensor.begin:,} bytes")
    return tensor


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)
