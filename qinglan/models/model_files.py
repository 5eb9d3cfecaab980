"""Check that a model's folder has only safetensors, ONNX, JSON and text, and no file that runs when it is loaded.

    refuse_disallowed_files(folder)            # before the model is signed
    reasons = disallowed_files(folder)         # for an audit: the reason for each refused file

The ending of a file's name determines its format, and its bytes must be in this format: safetensors are parsed to
their last byte, JSON is parsed, text must be UTF-8 and not a pickle. references.py checks that the folder has
weights, that loaders find everything in it, and that no setting names code or another model. An ONNX graph must hold
its own weights, and only operators of our own export (onnx_graph.py).
"""

import pickletools
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from qinglan.documents import parse_json
from qinglan.errors import DataError
from qinglan.files.plain_files import open_plain, plain_files, read_plain
from qinglan.models.onnx.onnx_graph import graph_fault
from qinglan.models.references import reference_faults
from qinglan.models.safetensors_header import read_header

PICKLES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".npy", ".npz"})
TEXTS = frozenset({".txt", ".jinja", ".md"})
NAMED_TEXTS = frozenset({"LICENSE", "NOTICE"})
ARCHIVES = {
    b"PK": "a ZIP archive, as torch saves pickles",
    b"\x93NUMPY": "a NumPy file, which can hold pickles",
    b"\x1f\x8b": "a gzip archive",
    b"\x89HDF": "an HDF5 file",
    b"\x7fELF": "a program",
}
SENTENCEPIECE = b"\n"
"""First byte of a tokenizer.model, which is the tag of protobuf field 1, the first piece of its vocabulary."""

CALL_OPCODES = frozenset(
    {"GLOBAL", "STACK_GLOBAL", "REDUCE", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "BUILD", "EXT1", "EXT2"}
)
"""Opcodes with which a pickle calls a function: https://docs.python.org/3/library/pickletools.html"""


def refuse_disallowed_files(folder: Path) -> None:
    """Raise a DataError that names the first file that is not allowed, or the missing weights."""
    faults = disallowed_files(folder) or reference_faults(plain_files(folder).files)
    for name, why in sorted(faults.items()):
        raise DataError(
            f"{folder / name}: {why}. A release holds weights as .safetensors, an ONNX form, JSON and text only: "
            "take that file out, or save the model again."
        )


def disallowed_files(folder: Path) -> dict[str, str]:
    """Return the reason for each file that is not allowed. No file is loaded."""
    listing = plain_files(folder)
    faults = {name: why for name, path in listing.files.items() if (why := disallowed_reason(name, path))}
    return {**faults, **listing.faults}


def disallowed_reason(name: str, path: Path) -> str:
    """Return why a file is not allowed; "" if it is allowed."""
    ending = Path(name).suffix.lower()
    if ending in PICKLES:
        return f"{ending} is a pickle, or can hold one, which could run code when it is loaded"
    kind = FILE_CHECKS.get("text" if ending in TEXTS or Path(name).name in NAMED_TEXTS else ending)
    if kind is None:
        return f"no model needs a file ending in {ending or 'nothing'}"
    try:
        return kind(path)
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _safetensors(path: Path) -> str:
    try:
        read_header(path)
    except DataError as error:
        return str(error).removeprefix(f"{path}: ").rstrip(".")
    return ""


def _json(path: Path) -> str:
    try:
        parse_json(read_plain(path), path.name)
    except DataError as error:
        return _disguised(path) or f"no JSON ({str(error)[:120]})"
    return ""


def _text(path: Path) -> str:
    try:
        text = read_plain(path).decode("utf-8")
    except UnicodeDecodeError as error:
        return _disguised(path) or f"no text: byte {error.start} is not UTF-8"
    return _disguised(path) or ("no text: it holds a NUL" if "\0" in text else "")


def _sentencepiece(path: Path) -> str:
    with open_plain(path) as file:
        begins = file.read(1)
    return _disguised(path) or ("" if begins == SENTENCEPIECE else "no sentencepiece model")


FILE_CHECKS: dict[str, Callable[[Path], str]] = {
    ".safetensors": _safetensors,
    ".onnx": lambda path: graph_fault(read_plain(path)),
    ".json": _json,
    "text": _text,
    ".model": _sentencepiece,
}
"""Function that checks a file, by the file's ending."""


def _disguised(path: Path) -> str:
    """Return the real format if a file is an archive, a program or a pickle despite its name; else ""."""
    content = read_plain(path)
    for magic, what in ARCHIVES.items():
        if content.startswith(magic):
            return what
    return "a pickle, which could run code when it is loaded" if _is_pickle(content) else ""


def _is_pickle(content: bytes) -> bool:
    """Return True for a pickle that could call a function."""
    # Protocols 2 to 5 begin with these bytes; protocols 0 and 1 have no mark, so their opcodes are parsed.
    if content[:1] == b"\x80" and content[1:2] <= b"\x05":
        return True
    opcodes = set()
    try:
        for opcode, _, _ in pickletools.genops(BytesIO(content)):
            opcodes.add(opcode.name)
    except Exception:  # pickletools raises errors of many classes for other bytes
        return False
    return bool(opcodes & CALL_OPCODES)
