"""Models of transformers whose parameters are counted: real ones of small shapes, and large ones without memory."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification

from qinglan.sizing.shape import ModelShape, shape_of

SMALL = {
    "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 300,
    "tie_word_embeddings": False,
}  # fmt: skip


def small_shape(**changes: Any) -> ModelShape:
    return shape_of(SMALL | changes, "test")


def config(settings: dict[str, Any]) -> Any:
    return AutoConfig.for_model(**{**settings, "use_cache": False})


def causal_lm(settings: dict[str, Any], device: str = "meta", dtype: torch.dtype = torch.float32) -> Any:
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config(settings), dtype=dtype)


def critic(settings: dict[str, Any]) -> Any:
    """verl's critic: a classifier of each token with one output."""
    with torch.device("meta"):
        return AutoModelForTokenClassification.from_config(config({**settings, "num_labels": 1}))


def with_adapter(model: Any, rank: int) -> Any:
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM"))


def count(model: Any, trained: bool = False) -> int:
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad or not trained)
