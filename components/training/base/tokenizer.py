"""Train the tiny model's tokenizer: byte pairs of Chinese, split at punctuation, and bytes for unknown characters.

https://huggingface.co/docs/tokenizers/components
"""

import json
from collections.abc import Iterable
from typing import Any

from components.training.base.config import TinyConfig

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
RARE = 12
"""Lowest number of occurrences at which a pair becomes a token."""

TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
"""Chat template: ChatML, as in the Qwen family, without a section for thinking."""


def train_tokenizer(texts: Iterable[str], config: TinyConfig) -> Any:
    """Train a tokenizer that loses no character: each text is decoded to itself."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE(byte_fallback=True))
    bpe.pre_tokenizer = pre_tokenizers.Split(Regex(r"[^\p{L}\p{N}]"), behavior="isolated")
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocabulary, min_frequency=RARE, max_token_length=config.longest_token,
        special_tokens=SPECIAL + BYTES, show_progress=False,
    )  # fmt: skip
    bpe.train_from_iterator(texts, trainer)
    described = json.loads(bpe.to_str())
    # Bytes must be ordinary tokens: special ones would be matched in texts, and dropped from answers.
    described["added_tokens"] = [token for token in described["added_tokens"] if token["content"] in SPECIAL]
    bpe = Tokenizer.from_str(json.dumps(described))
    bpe.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"], padding_side="left", clean_up_tokenization_spaces=False,
    )  # fmt: skip
    tokenizer.chat_template = TEMPLATE
    return tokenizer
