"""Qwen3 of a public size with random weights, laid out as the published model's folder: nothing is downloaded."""

import json
from pathlib import Path
from typing import Any

import yaml

from qinglan.sizing.shape import SHAPES
from tests.models.qwen3 import CONFIG
from tests.models.tiny_rewriter import TEXTS
from tests.rehearsal.narrow_qwen3 import GENERATION, write_tokenizer


def settings(name: str) -> dict[str, Any]:
    """Its config.json."""
    shapes: dict[str, dict[str, Any]] = yaml.safe_load(SHAPES.read_text(encoding="utf-8"))
    return CONFIG | shapes[name] | {"max_window_layers": shapes[name]["num_hidden_layers"]}


def write_folder(folder: Path, name: str, weights: bool = True) -> Path:
    """Tokenizer, configuration and, made on the GPU in bfloat16, the weights."""
    folder.mkdir(parents=True)
    if weights:
        write_weights(folder, settings(name))
    write_tokenizer(folder, TEXTS)
    (folder / "config.json").write_text(json.dumps(settings(name), indent=2), encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps(GENERATION, indent=2), encoding="utf-8")
    return folder


def write_weights(folder: Path, values: dict[str, Any]) -> None:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            model = Qwen3ForCausalLM(Qwen3Config(**values))
    finally:
        torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder)
    del model
    torch.cuda.empty_cache()
