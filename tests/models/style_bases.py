"""Bases of several architectures with untrained weights, each with a tokenizer trained on the given texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

END = "<|endoftext|>"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
POSITIONS = 300
BUILDERS = {
    "bert": ("BertConfig", "BertForMaskedLM"),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM"),
    "xlm-roberta": ("XLMRobertaConfig", "XLMRobertaForMaskedLM"),
    "modernbert": ("ModernBertConfig", "ModernBertForMaskedLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
    "electra": ("ElectraConfig", "ElectraForMaskedLM"),
}


def make_tokenizer(texts: Sequence[str], vocabulary: int = 900) -> Any:
    """Characters and frequent pairs; a text begins with [CLS] and ends with [SEP], as an encoder's does."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=SPECIAL))
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def make_bytes_tokenizer(texts: Sequence[str], vocabulary: int = 900) -> Any:
    """Bytes and frequent pairs, as in the Qwen family; transformers opens no other kind for qwen2."""
    import json

    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import Qwen2Tokenizer

    pairs = Tokenizer(models.BPE())
    pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=[END], initial_alphabet=alphabet)
    pairs.train_from_iterator(texts, trainer)
    model = json.loads(pairs.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    return Qwen2Tokenizer(vocab=model["vocab"], merges=merges, eos_token=END, pad_token=END, unk_token=None)


def make_base(
    folder: Path, architecture: str, texts: Sequence[str], layers: int = 4, spread: float = 0.2, **changes: Any
) -> Path:
    """A language model's folder, as a hub has it: it knows no classes yet."""
    import torch
    import transformers

    torch.manual_seed(0)
    tokenizer = (make_bytes_tokenizer if architecture.startswith("qwen") else make_tokenizer)(texts)
    config_class, model_class = (getattr(transformers, name) for name in BUILDERS[architecture])
    offset = 1 if architecture in ("roberta", "xlm-roberta") else 0  # they count positions from the pad token's id on
    shape = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": layers,
        "num_attention_heads": 2, "max_position_embeddings": POSITIONS + offset, "initializer_range": spread,
        "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip
    if architecture.startswith("qwen"):
        shape |= {"num_key_value_heads": 1, "head_dim": 16}
    if architecture == "modernbert":
        shape |= {
            "cls_token_id": tokenizer.cls_token_id,
            "sep_token_id": tokenizer.sep_token_id,
            "local_attention": 32,
        }
    model_class(config_class(**shape | changes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
