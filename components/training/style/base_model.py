"""Open the base of a classifier with a new head, or refuse it for a named fault before anything is trained.

A base may be a decoder or an encoder. The tests train, distil and export each architecture of SUPPORTED. Other
architectures are refused, since distillation and export rely on a model's structure.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from components.training.style.config import StyleConfig
from qinglan.errors import DataError
from qinglan.style.labels import Labels
from qinglan.style.model import load_tokenizer, refuse_pickles

SUPPORTED = ("qwen2", "qwen3", "bert", "roberta", "xlm-roberta", "modernbert")
"""Architectures, as `model_type` of config.json names them."""

OFFSET_POSITIONS = ("roberta", "xlm-roberta")
"""Architectures that count positions from pad_token_id + 1 on (transformers, modeling_roberta.py,
create_position_ids_from_input_ids)."""

UNKNOWN = 0.2
"""Largest share of unknown tokens allowed in the training texts. With more, the tokenizer belongs to another
language."""

PROBED = 200
"""Number of training texts that the tokenizer is tried on."""

LORA_SCALE = 2
"""LoRA's alpha, as a multiple of its rank."""


def open_base(base: Path, labels: Labels, texts: Sequence[str], config: StyleConfig) -> tuple[Any, Any]:
    """Open the base with a new head, and its tokenizer. Trained weights are in float32 on every device."""
    import torch
    from transformers import AutoConfig

    refuse_pickles(base)
    torch.manual_seed(config.seed)
    try:
        described = AutoConfig.from_pretrained(base, local_files_only=True)
        tokenizer = load_tokenizer(base)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{base}: no base model that transformers opens ({str(error).splitlines()[0]}).") from error
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    check_architecture(base, described)
    check_tokenizer(base, tokenizer, described, texts, config.max_length)
    frozen_on_gpu = config.lora_rank > 0 and config.device == "cuda"
    model = _open_weights(base, labels, torch.bfloat16 if frozen_on_gpu else torch.float32)
    model.config.pad_token_id = tokenizer.pad_token_id
    return (_with_adapters(model, config.lora_rank) if config.lora_rank else model), tokenizer


def check_architecture(base: Path, described: Any) -> None:
    if described.model_type not in SUPPORTED:
        raise DataError(
            f"{base}: a model of type {described.model_type!r}. The style line trains, distils and exports "
            f"{', '.join(SUPPORTED)}. Name a base of one of these (base.model)."
        )


def check_tokenizer(base: Path, tokenizer: Any, described: Any, texts: Sequence[str], max_length: int) -> None:
    """Refuse a tokenizer that does not belong to the weights, or cannot read the training texts."""
    if tokenizer.pad_token_id is None:
        raise DataError(f"{base}: its tokenizer has neither a pad token nor an end token, and batches are padded.")
    if (tokens := len(tokenizer)) > described.vocab_size:
        raise DataError(
            f"{base}: its tokenizer has {tokens:,} tokens, and its weights {described.vocab_size:,}. Tokenizer and "
            "weights are of two models: download the base again, all files of one revision."
        )
    positions = getattr(described, "max_position_embeddings", max_length)
    if described.model_type in OFFSET_POSITIONS:
        positions -= described.pad_token_id + 1
    if max_length > positions:
        raise DataError(
            f"{base}: it reads {positions} tokens at most, and style.max_length is {max_length}. Set "
            f"style.max_length to {positions} or less."
        )
    ids = [token for row in tokenizer(list(texts[:PROBED])).input_ids for token in row]
    if (spoken := len(set(ids))) < 2 or ids.count(tokenizer.unk_token_id) > UNKNOWN * len(ids):
        unknown = ids.count(tokenizer.unk_token_id) / max(1, len(ids))
        raise DataError(
            f"{base}: its tokenizer cannot read the training texts: {spoken} different tokens in them, "
            f"{unknown:.0%} of all unknown. Take a base that knows their language."
        )


def _open_weights(base: Path, labels: Labels, dtype: Any) -> Any:
    from safetensors import SafetensorError
    from transformers import AutoModelForSequenceClassification

    try:
        model, loaded = AutoModelForSequenceClassification.from_pretrained(
            base,
            num_labels=len(labels.labels),
            id2label=dict(enumerate(labels.names)),
            label2id=labels.ids,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise DataError(
            f"{base}: no base model that transformers opens ({str(error).strip().splitlines()[0]}). Download it "
            "again, all files of one revision."
        ) from error
    # A missing pooler is accepted as part of the new head, since a language model has none.
    prefix = f"{model.base_model_prefix}."
    base_keys = (name for name in loaded["missing_keys"] if name.startswith(prefix) and ".pooler." not in name)
    if missing := sorted(base_keys):
        raise DataError(
            f"{base}: its weights lack {len(missing)} tensors of a {model.config.model_type} model, such as "
            f"{missing[0]}. They are of another model, or not all were downloaded: download the base again."
        )
    return model


def _with_adapters(model: Any, rank: int) -> Any:
    """Add adapters to every linear layer of the base; all weights of head and pooler are trained."""
    from peft import LoraConfig, TaskType, get_peft_model

    parts = {name: list(part.parameters()) for name, part in model.named_children()}
    new = {name for name, weights in parts.items() if weights and name != model.base_model_prefix}
    if hasattr(model.base_model, "pooler"):
        new.add("pooler")
    # peft's "all-linear" leaves out heads of known names only (peft/tuners/tuners_utils.py, SEQ_CLS_HEAD_NAMES), and
    # no pooler. Both have new weights, for which an adapter is too small: they are excluded by name and saved whole.
    settings = LoraConfig(
        task_type=TaskType.SEQ_CLS,
        r=rank,
        lora_alpha=LORA_SCALE * rank,
        target_modules="all-linear",
        exclude_modules=rf"(.*\.)?({'|'.join(sorted(new))})(\..*)?",
        modules_to_save=sorted(new),
    )
    adapted = get_peft_model(model, settings)
    for weights in adapted.parameters():
        if weights.requires_grad:
            weights.data = weights.data.float()
    return adapted


def merged(model: Any) -> Any:
    """Return the model with its adapters merged into the base's weights. A model without adapters is unchanged."""
    return model.merge_and_unload() if hasattr(model, "merge_and_unload") else model
