"""Settings in a model's folder that would make a loader run code, or load another model than the folder's.

    why = settings_fault("config.json", settings)       # "" if there are none

transformers, vLLM and PEFT load code, kernels and whole models by such settings. No model of ours needs any.
"""

from collections.abc import Iterator
from typing import Any

from qinglan.models.chat_template_work import template_fault
from qinglan.terminal import visible

CODE = frozenset({"auto_map", "custom_generate", "custom_pipelines", "trust_remote_code", "auto_mapping"})
OTHER_MODELS = frozenset({"speculators_config", "configuration_files", "backbone", "use_timm_backbone"})
"""Settings that load another model: a speculator's verifier in vLLM, a version's own file or a backbone elsewhere."""

ALIASES = "attribute_map"
"""A map of names to others, by which transformers reads any setting; its own classes have theirs in code."""

QUANTISED = frozenset({"quantization_config", "compression_config", "quant_method"})
KERNELS = frozenset({"use_kernels", "kernel_config", "hub_kernels"})
IMPLEMENTATIONS = ("attn_implementation", "attn_implementation_internal", "experts_implementation")
"""Endings of settings that name how a layer is computed; a name with a slash is a kernel of the hub."""

KNOWN_IMPLEMENTATIONS = frozenset({"eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"})

GENERATION = frozenset({
    "_from_model_config", "transformers_version", "bos_token_id", "eos_token_id", "pad_token_id",
    "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "do_sample", "temperature", "top_k",
    "top_p", "min_p", "typical_p", "repetition_penalty", "max_length", "max_new_tokens", "min_length",
    "use_cache", "output_attentions", "output_hidden_states",
})  # fmt: skip
"""Settings of generation_config.json that choose tokens, and add no searches, models or caches."""

SECOND_READINGS = frozenset({"params.json", "tekken.json", "modules.json", "quantize_config.json"})
"""Files that make some programs read the folder as another model than the rest do."""


def settings_fault(file: str, settings: Any) -> str:
    """Why the settings of this JSON file are refused, "" if they are not; `file` is a name without its folder."""
    if file in SECOND_READINGS or file.endswith("quant_config.json"):
        return "programs that know this file would read another model than those that do not"
    if file == "generation_config.json" and isinstance(settings, dict):
        unknown = sorted(key for key, value in settings.items() if value is not None and key not in GENERATION)
        if unknown:
            return f"{visible(unknown[0][:80])!r} changes how answers are searched, and a release decodes greedily"
    return next(_faults(settings), "")


def _faults(settings: Any) -> Iterator[str]:
    for key, value in _settings(settings):
        if value in (None, False, "", {}, []):
            continue
        if key in CODE:
            yield f"{key!r} names code, and a release holds none. Take that key out"
        elif key == ALIASES:
            yield f"{key!r} gives settings other names, by which they would not be seen here. Take that key out"
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


def _settings(settings: Any) -> Iterator[tuple[str, Any]]:
    """Each setting with its key, at any depth."""
    rest = [settings]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            yield from value.items()
            rest.extend(value.values())
        elif isinstance(value, list):
            rest.extend(value)
