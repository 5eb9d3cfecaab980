"""Qwen2.5-0.5B-Instruct made narrow: its own config.json, tokenizer layout, special tokens and chat template.

The files are laid out as the published model's, with random weights. All 24 layers and 14 heads are there: a
distillation keeps the same layers as of the real one.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.rehearsal.narrow_qwen3 import MERGED_TOKENS, SPECIAL_TOKENS, write_tokenizer

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
    "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
    "max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2", "num_attention_heads": 14,
    "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "transformers_version": "4.43.1", "use_cache": True, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
"""The published config.json."""

NARROW: dict[str, Any] = {"hidden_size": 112, "intermediate_size": 608, "initializer_range": 0.057}
"""All that differs from it: an eighth of the width, and random weights that are larger by the root of that, so that
what a layer adds is as large."""

GENERATION = {
    "bos_token_id": 151643, "do_sample": True, "eos_token_id": [151645, 151643], "pad_token_id": 151643,
    "repetition_penalty": 1.1, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "transformers_version": "4.37.0",
}  # fmt: skip

LATER_TOKENS = ("<tool_response>", "</tool_response>", "<think>", "</think>")
"""Special tokens that came with Qwen3; the rest of its tokenizer is Qwen2.5's."""

CHAT_TEMPLATE = (
    "{%- if messages[0]['role'] == 'system' %}"
    "{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}"
    "{%- else %}{{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    "<|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}{%- if not (message.role == 'system' and loop.first) %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
"""The published one, for chats without tools."""


def write_narrow_qwen2(folder: Path, texts: Sequence[str], seed: int = 0) -> Path:
    """The model's folder; the tokenizer learns from these texts."""
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(folder, seed)
    write_tokenizer(folder, texts)
    as_qwen2(folder)
    for name, values in (("config", {**CONFIG, **NARROW}), ("generation_config", GENERATION)):
        (folder / f"{name}.json").write_text(json.dumps(values, indent=2), encoding="utf-8")
    return folder


def as_qwen2(folder: Path) -> None:
    """Take the later tokens out of a tokenizer of Qwen3's, and give it Qwen2.5's chat template."""
    later = {MERGED_TOKENS + SPECIAL_TOKENS.index(token) for token in LATER_TOKENS}
    tokenizer, config = (
        json.loads((folder / name).read_bytes()) for name in ("tokenizer.json", "tokenizer_config.json")
    )
    tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if token["id"] not in later]
    added = config["added_tokens_decoder"]
    config["added_tokens_decoder"] = {number: added[number] for number in added if int(number) not in later}
    config["chat_template"] = CHAT_TEMPLATE
    for name, values in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        (folder / name).write_text(json.dumps(values, ensure_ascii=False), encoding="utf-8")


def write_weights(folder: Path, seed: int) -> None:
    """Random weights in bfloat16; the head is the embeddings, as in the published model."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    Qwen2ForCausalLM(Qwen2Config(**{**CONFIG, **NARROW})).to(torch.bfloat16).save_pretrained(folder)
