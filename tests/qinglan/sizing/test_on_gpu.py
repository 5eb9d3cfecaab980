"""On a GPU: a step of SFT takes as much memory as `qinglan fit` says."""

import time
from typing import Any

import pytest
import torch
import yaml

from components.training.sft.config import SftConfig
from components.training.sft.fit import card_phases
from qinglan.sizing.constants import GB
from qinglan.sizing.shape import SHAPES, shape_of
from qinglan.sizing.speed import training_operations
from tests.qinglan.sizing.models import causal_lm, with_adapter

NOT_TENSORS = ("CUDA", "NCCL", "fragments")
"""Parts that PyTorch's allocator does not count."""

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: memory is compared on one alone")


def sft_peak(settings: dict[str, Any], config: SftConfig) -> tuple[float, float]:
    """Bytes of a step on this GPU as PyTorch counted them, and as `fit` does; the weights are random."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model = causal_lm(settings, "cuda", torch.bfloat16)
    model = with_adapter(model, config.lora_rank) if config.tuner == "lora" else model
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    model.train()
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad])
    ids = torch.zeros(config.batch, config.max_length, dtype=torch.long, device="cuda")
    for _ in range(2):  # the moments are made in the first step, and held in the second
        torch.cuda.synchronize()
        started = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(input_ids=ids, labels=ids)
        out.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
    shape = shape_of(settings, "test")
    seconds, tokens = time.perf_counter() - started, config.batch * config.max_length
    operations = training_operations(shape.multiplied + shape.embedding, tokens, config.tuner == "full")
    print(f"{seconds:.2f} s, {tokens / seconds:,.0f} tokens a second, {operations / seconds / 1e12:.0f} teraflops")
    print(f"reserved {torch.cuda.max_memory_reserved() / GB:.2f} GB, of the card {card_used():.2f} GB")
    [phase] = card_phases(config, shape_of(settings, "test"))
    counted = sum(part.bytes for part in phase.amounts if part.name not in NOT_TENSORS)
    return torch.cuda.max_memory_allocated(), counted


def card_used() -> float:
    """GB that all processes hold of the card."""
    free, total = torch.cuda.mem_get_info()
    return (total - free) / GB


@needs_gpu
@pytest.mark.parametrize(
    "name, batch", [("Qwen/Qwen3-0.6B", 2), ("Qwen/Qwen3-4B", 2), ("Qwen/Qwen3-8B", 2), ("Qwen/Qwen3-32B", 1)]
)
def test_a_step_of_sft_takes_what_fit_says(name: str, batch: int) -> None:
    settings = yaml.safe_load(SHAPES.read_text(encoding="utf-8"))[name]

    measured, counted = sft_peak(settings, SftConfig(gpus=1, batch=batch, max_length=1024))

    print(f"{torch.cuda.get_device_name(0)}: {name} {measured / GB:.2f} GB measured, {counted / GB:.2f} GB by fit")
    assert counted == pytest.approx(measured, rel=0.15)
