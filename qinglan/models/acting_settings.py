"""Settings in a model's folder that would make a loader run code, or load another model than the folder's.

    why = settings_fault("config.json", settings)       # "" if the settings are accepted

transformers, vLLM and PEFT load code, kernels and whole models by such settings, and no supported model needs them.
https://huggingface.co/docs/transformers/custom_models, https://huggingface.co/docs/transformers/attention_interface
"""

from collections.abc import Iterator
from typing import Any

from qinglan.models.chat_template_work import template_fault
from qinglan.terminal import visible

CODE = frozenset({"auto_map", "custom_generate", "custom_pipelines", "trust_remote_code", "auto_mapping"})
OTHER_MODELS = frozenset({"speculators_config", "configuration_files", "backbone", "use_timm_backbone"})
"""Settings that make a loader read another model: the verifier of a speculator in vLLM, a file for another version,
or a backbone from another folder or from the hub."""

ALIASES = "attribute_map"
"""Key of a map that gives settings other names. A model's folder needs none, since transformers has it in code."""

QUANTISED = frozenset({"quantization_config", "compression_config", "quant_method"})
KERNELS = frozenset({"use_kernels", "kernel_config", "hub_kernels"})
IMPLEMENTATIONS = ("attn_implementation", "attn_implementation_internal", "experts_implementation")
"""Endings of settings that name the implementation of a layer; a name with a slash is a kernel of the hub."""

KNOWN_IMPLEMENTATIONS = frozenset({"eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"})

GENERATION = frozenset({
    "_from_model_config", "transformers_version", "bos_token_id", "eos_token_id", "pad_token_id",
    "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "do_sample", "temperature", "top_k",
    "top_p", "min_p", "typical_p", "repetition_penalty", "max_length", "max_new_tokens", "min_length",
    "use_cache", "output_attentions", "output_hidden_states",
})  # fmt: skip
"""Settings that generation_config.json may have. They only choose tokens, without a search, a model or a cache."""

LAYERS = (
    "num_layers", "n_layer", "n_layers", "layers", "encoder_layers", "decoder_layers", "num_encoder_layers",
    "num_decoder_layers", "decoder_num_hidden_layers", "num_hidden_groups", "num_blocks", "num_nextn_predict_layers",
)  # fmt: skip
"""Names of num_hidden_layers in other architectures. A layer costs time and memory before any weight is read."""

LARGEST = {
    "vocab_size": 1 << 20, "hidden_size": 1 << 16, "intermediate_size": 1 << 20, "num_hidden_layers": 1_000,
    "num_attention_heads": 1_024, "num_key_value_heads": 1_024, "head_dim": 1 << 14,
    "max_position_embeddings": 1 << 24, "type_vocab_size": 1_024, "num_labels": 10_000,
    "num_experts": 4_096, "num_local_experts": 4_096, "embedding_size": 1 << 16, "max_window_layers": 1_000,
    "n_routed_experts": 4_096, "moe_num_experts": 4_096, "n_positions": 1 << 24, "max_seq_len": 1 << 24,
    "context_length": 1 << 24,
    **dict.fromkeys(LAYERS, 1_000),
}  # fmt: skip
"""Largest accepted values of settings by which a loader allocates memory before it compares them with the weights.
Llama 3.1 405B has 126 layers of 16,384, Gemma 3 has 262,208 tokens, and Llama 4 has 10,485,760 positions."""

SECOND_READINGS = frozenset({"params.json", "tekken.json", "modules.json", "quantize_config.json"})
"""Files that make some programs read the folder as another model than other programs do."""


def settings_fault(file: str, settings: Any) -> str:
    """Return why the settings in a JSON file are refused, or "". `file` is the file's name without the folder."""
    if file in SECOND_READINGS or file.endswith("quant_config.json"):
        return "programs that know this file would read another model than those that do not"
    if file == "generation_config.json" and isinstance(settings, dict):
        unknown = sorted(key for key, value in settings.items() if value is not None and key not in GENERATION)
        if unknown:
            return f"{visible(unknown[0][:80])!r} changes how answers are searched, and a release decodes greedily"
    return next(_faults(settings), "")


def _faults(settings: Any) -> Iterator[str]:
    for key, value in keyed_values(settings):
        if value in (None, False, "", {}, []):
            continue
        if key in LARGEST and not (type(value) is int and 0 <= value <= LARGEST[key]):
            yield f"{key!r} is {visible(str(value)[:40])}, and {LARGEST[key]:,} is the most of any supported model"
        elif key in CODE:
            yield f"{key!r} names code, and a release holds none. Take that key out"
        elif key == ALIASES:
            yield f"{key!r} gives settings other names, which this check does not know. Take that key out"
        elif key in OTHER_MODELS:
            yield f"{key!r} makes a loader read another model. Take that key out"
        elif key in QUANTISED:
            yield f"{key!r} says that the weights are quantised; save the model in bfloat16"
        elif key in KERNELS or (key.endswith(IMPLEMENTATIONS) and not _known(value)):
            yield f"{key!r} names a kernel that is not in the folder. Take that key out"
        elif key in ("chat_template", "template") and isinstance(value, str) and (why := template_fault(value)):
            yield why


def _known(value: Any) -> bool:
    values = value.values() if isinstance(value, dict) else [value]
    return all(item is None or (isinstance(item, str) and item in KNOWN_IMPLEMENTATIONS) for item in values)


def keyed_values(settings: Any) -> Iterator[tuple[str, Any]]:
    """Yield each value at any depth with its key; the items of a list get the key of the list."""
    rest: list[tuple[str, Any]] = [("", settings)]
    while rest:
        key, value = rest.pop()
        yield key, value
        if isinstance(value, dict):
            rest.extend(value.items())
        elif isinstance(value, list):
            rest.extend((key, item) for item in value)
