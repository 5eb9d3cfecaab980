"""A configuration that disagrees with the weights is refused when a model is signed, and when it is loaded."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from qinglan.errors import DataError
from qinglan.models.model_files import refuse_disallowed_files
from qinglan.models.references import refuse_foreign_files

QWEN, BERT = "model.embed_tokens.weight", "electra.embeddings.word_embeddings.weight"


def model(folder: Path, settings: Any, tensors: dict[str, tuple[int, ...]]) -> Path:
    """A folder with these settings and tensors, a file for each of them."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(settings))
    names = [f"model-{number}.safetensors" for number in range(len(tensors))]
    for file, (name, shape) in zip(names, tensors.items(), strict=True):
        save_file({name: np.zeros(shape, np.float32)}, folder / file)
    index = {"weight_map": dict(zip(tensors, names, strict=True))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize(
    ("settings", "tensors"),
    [
        ({"vocab_size": 6, "hidden_size": 4}, {QWEN: (6, 4), "lm_head.weight": (6, 4)}),
        ({"vocab_size": 6, "hidden_size": 4, "embedding_size": 2}, {BERT: (6, 2)}),
        ({"hidden_size": 4}, {QWEN: (6, 4)}),
        ({"vocab_size": 6}, {"model.norm.weight": (4,)}),
        ({}, {QWEN: (6, 4)}),
    ],
)
def test_sizes_of_the_weights_are_accepted(
    tmp_path: Path, settings: Any, tensors: dict[str, tuple[int, ...]]
) -> None:
    for refuse in (refuse_disallowed_files, refuse_foreign_files):
        refuse(model(tmp_path / refuse.__name__, settings, tensors))


@pytest.mark.parametrize(
    ("settings", "tensors", "message"),
    [
        ({"vocab_size": 1_000_000, "hidden_size": 4}, {QWEN: (6, 4)}, "'vocab_size' is 1000000"),
        ({"vocab_size": "6", "hidden_size": 4}, {QWEN: (6, 4)}, "'vocab_size'"),
        ({"vocab_size": 6, "hidden_size": 65_536}, {QWEN: (6, 4)}, "'hidden_size' is 65536"),
        ({"vocab_size": 6, "hidden_size": 4}, {QWEN: (6, 4), "lm_head.weight": (7, 4)}, "lm_head.weight"),
        ({"vocab_size": 6, "hidden_size": 4, "embedding_size": 3}, {BERT: (6, 2)}, "'embedding_size' is 3"),
        ({"vocab_size": 7, "hidden_size": 4}, {"transformer.wte.weight": (6, 4)}, "wte.weight"),
        ({"vocab_size": 6, "hidden_size": 4}, {"lm_head.weight": (24,)}, "'vocab_size' is 6"),
    ],
)
def test_a_size_that_is_not_that_of_the_weights_is_refused_when_signed_and_when_loaded(
    tmp_path: Path, settings: Any, tensors: dict[str, tuple[int, ...]], message: str
) -> None:
    for refuse in (refuse_disallowed_files, refuse_foreign_files):
        with pytest.raises(DataError) as refused:
            refuse(model(tmp_path / refuse.__name__, settings, tensors))

        assert "config.json" in str(refused.value) and message in str(refused.value)
