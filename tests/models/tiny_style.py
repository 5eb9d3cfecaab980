"""A style model small enough to make in a test: untrained weights, a real tokenizer, the folder that stages write."""

from pathlib import Path
from typing import Any

from qinglan.style.labels import DEFAULT_LABELS, format_training_text, write_mapping
from qinglan.style.model import StyleCard, write_card
from tests.models.tiny_rewriter import SHAPE, TEXTS

STYLE_TEXT = format_training_text("这个产品有什么优缺点？", "有很多优点，但也存在一些限制。")


def tiny_style_model(folder: Path, seed: int = 1, stage: str = "style") -> Path:
    """A folder that StyleModel.load takes; its answers depend on the text, and mean nothing."""
    import torch
    from transformers import Qwen3Config, Qwen3ForSequenceClassification

    from components.training.base.tokenizer import train_tokenizer

    torch.manual_seed(seed)
    tokenizer: Any = train_tokenizer([*TEXTS, STYLE_TEXT], SHAPE)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=512, initializer_range=0.6,
        pad_token_id=tokenizer.pad_token_id, num_labels=len(DEFAULT_LABELS.labels),
    )  # fmt: skip
    Qwen3ForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_mapping(folder, DEFAULT_LABELS)
    write_card(folder, StyleCard(stage=stage))
    return folder
