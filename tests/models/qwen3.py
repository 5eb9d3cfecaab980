"""Qwen3-32B as the base stage leaves it on disk, without its weights: the shape, and what its chat template does."""

import json
from pathlib import Path
from typing import Any

from qinglan.rewriter.model import load_tokenizer
from tests.models.tiny_rewriter import tiny_model

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02,
    "intermediate_size": 25600, "max_position_embeddings": 40960, "max_window_layers": 64, "model_type": "qwen3",
    "num_attention_heads": 64, "num_hidden_layers": 64, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "use_cache": True, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
PARAMETERS = 32_762_123_264

CHAT_TEMPLATE = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}"
)
"""Qwen3's own, for a system prompt, a question and an answer."""

SPECIAL_TOKENS = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
]  # fmt: skip
ADDED_TOKENS = [
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
    "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>",
]  # fmt: skip
"""Qwen3's own, all that its tokenizer finds in a text before it cuts the rest."""


def qwen3_tokenizer(folder: Path) -> Any:
    """A tiny vocabulary with Qwen3's control tokens and chat template."""
    from tokenizers import AddedToken

    tokenizer = load_tokenizer(tiny_model(folder, stage="base"))
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in ADDED_TOKENS])
    return tokenizer


def qwen3_32b(folder: Path) -> Path:
    """A base model's folder with the real config.json and chat template, and a tiny tokenizer."""
    tokenizer = load_tokenizer(tiny_model(folder, stage="base"))
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return folder
