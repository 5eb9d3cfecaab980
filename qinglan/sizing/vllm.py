"""Memory of a vLLM engine: weights divided by tensor parallelism, slots of adapters, and the cache of keys and
values.

vLLM uses its whole share of a card: memory that weights and work leave becomes blocks of the cache. It starts only if
one request of the greatest length fits into the cache.
"""

from collections.abc import Sequence
from typing import NamedTuple

from qinglan.sizing.constants import VLLM_WORK
from qinglan.sizing.ledger import Amount, Phase, constant, phase
from qinglan.sizing.shape import ModelShape

WIDTH = 2
"""Bytes of a weight, key or value in bf16."""


class VllmSettings(NamedTuple):
    """The options of `vllm serve` that decide on memory, with vLLM's own defaults."""

    tensor_parallel: int = 1
    memory_share: float = 0.92
    max_model_len: int = 40_960
    lora_slots: int = 0
    lora_rank: int = 0


def settings_of_options(options: Sequence[str]) -> VllmSettings:
    """Read the options of `vllm serve` that decide on memory, with vLLM's defaults for missing options."""
    values = dict(option.removeprefix("--").partition("=")[::2] for option in options)
    adapters = "enable-lora" in values
    plain = VllmSettings()
    return VllmSettings(
        tensor_parallel=int(values.get("tensor-parallel-size", plain.tensor_parallel)),
        memory_share=float(values.get("gpu-memory-utilization", plain.memory_share)),
        max_model_len=int(values.get("max-model-len", plain.max_model_len)),
        lora_slots=int(values.get("max-loras", 1)) if adapters else 0,
        lora_rank=int(values.get("max-lora-rank", 16)) if adapters else 0,
    )


def engine_amounts(shape: ModelShape, settings: VllmSettings) -> tuple[Amount, ...]:
    """Compute the memory that vLLM needs on a card without the cache."""
    cards = settings.tensor_parallel
    return (
        Amount("weights", shape.parameters * WIDTH / cards),
        Amount("adapters", settings.lora_slots * shape.adapter(settings.lora_rank) * WIDTH / cards),
        constant("vLLM's work", VLLM_WORK),
    )


def least_phase(shape: ModelShape, settings: VllmSettings) -> Phase:
    """Compute the memory that vLLM's share of a card must at least hold. Its cache must fit one request of the
    greatest length."""
    # vLLM refuses to start with a smaller cache (vllm/v1/core/kv_cache_utils.py).
    longest = settings.max_model_len * shape.cached(settings.tensor_parallel) * WIDTH
    return phase("the longest request", *engine_amounts(shape, settings), Amount("keys and values", longest))
