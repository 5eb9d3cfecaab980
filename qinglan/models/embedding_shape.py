"""Compare a configuration with the shape of the embedding: a loader allocates by the one, and fills by the other.

why = embedding_fault(plain_files(folder).files)        # "" if they agree
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from qinglan.documents import parse_json
from qinglan.errors import DataError
from qinglan.files.plain_files import read_plain
from qinglan.models.safetensors_header import Tensor, read_header
from qinglan.terminal import visible

EMBEDDINGS = ("embed_tokens.weight", "word_embeddings.weight", "lm_head.weight", "wte.weight")
"""Endings of tensors with a row for each token: of Qwen and Llama, of BERT's family, the head, of GPT-2."""


def embedding_fault(files: Mapping[str, Path]) -> str:
    """The first disagreement of config.json with an embedding at the top of the folder; "" if there is none."""
    if "config.json" not in files:
        return ""
    try:
        settings = parse_json(read_plain(files["config.json"]), "config.json")
    except (OSError, DataError):  # refused as such
        return ""
    if not isinstance(settings, dict):
        return ""
    columns = "embedding_size" if settings.get("embedding_size") is not None else "hidden_size"
    for tensor in _embeddings(files):
        for key, size in zip(("vocab_size", columns), tensor.shape, strict=False):
            if settings.get(key) not in (None, size):
                return (
                    f"'{key}' is {visible(str(settings[key])[:40])}, and {tensor.name} has the shape "
                    f"{list(tensor.shape)}"
                )
    return ""


def _embeddings(files: Mapping[str, Path]) -> Iterator[Tensor]:
    for name, path in files.items():
        if name.endswith(".safetensors") and "/" not in name:
            try:
                yield from (tensor for tensor in read_header(path) if tensor.name.endswith(EMBEDDINGS))
            except DataError:  # refused as such
                continue
