"""Load a model only if its files have every tensor of its configuration, in the right shape, and no others.

    model = load_whole(AutoModelForCausalLM, folder, dtype=torch.float32)     # raises a DataError for a difference

A loader allocates memory by config.json, and fills tensors that no file has with random numbers. So the model is
first loaded on torch's meta device, where tensors have shapes but no memory. There transformers reports which tensors
are missing, unknown or of another shape, by its own rules for tied weights, shards and renamed tensors.
https://docs.pytorch.org/docs/stable/meta.html
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qinglan.errors import DataError
from qinglan.terminal import visible

LONGEST_REASON = 300
"""Largest number of characters that are shown of a library's message."""

LARGEST_BUFFERS = 1 << 28
"""Largest size in bytes of the buffers that a model computes, such as tables of positions. Supported models have some
hundred KiB."""


def load_whole(auto_class: Any, folder: Path, **options: Any) -> Any:
    """Load a folder's safetensors with a class of transformers; `options` are passed to its from_pretrained()."""
    with words_for_broken(folder):
        fault = _shape_fault(auto_class, folder)
        if not fault:
            return auto_class.from_pretrained(folder, use_safetensors=True, local_files_only=True, **options)
    raise DataError(
        f"{folder}: no whole model: {fault}. Copy it again from where it was trained, or run that stage again."
    )


@contextmanager
def words_for_broken(folder: Path) -> Iterator[None]:
    """Turn the errors that transformers raises for an incomplete model into a DataError."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    try:
        yield
    except (
        OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, SafetensorError, StrictDataclassError,
    ) as error:  # fmt: skip
        reason = " ".join(str(error).split())[:LONGEST_REASON]
        raise DataError(
            f"{folder}: no whole model ({type(error).__name__}: {reason}). "
            "Copy it again from where it was trained, or run that stage again."
        ) from error


def _shape_fault(auto_class: Any, folder: Path) -> str:
    """Return a difference between a model's files and its config.json; "" if they agree. Only headers are read."""
    import torch
    from transformers import AutoConfig

    with torch.device("meta"):
        empty = auto_class.from_config(AutoConfig.from_pretrained(folder, local_files_only=True))
    if (size := sum(buffer.nbytes for buffer in empty.buffers())) > LARGEST_BUFFERS:
        return f"its config.json asks for {size:,} bytes of buffers, and {LARGEST_BUFFERS:,} is the most"
    del empty
    # Without ignore_mismatched_sizes, transformers raises an error that does not name the tensors' shapes.
    _, report = auto_class.from_pretrained(
        folder, device_map="meta", use_safetensors=True, local_files_only=True, output_loading_info=True,
        ignore_mismatched_sizes=True,
    )  # fmt: skip
    if mismatched := sorted(report["mismatched_keys"]):
        name, stored, configured = mismatched[0]
        return f"{visible(name)} has the shape {list(stored)} in its files, and {list(configured)} by its config.json"
    if missing := sorted(report["missing_keys"]):
        return f"its files lack {visible(missing[0])}, which config.json asks for, and {len(missing) - 1} more"
    if unknown := sorted(report["unexpected_keys"]):
        return (
            f"its files hold {visible(unknown[0])}, which config.json does not ask for, and {len(unknown) - 1} more"
        )
    return ""
