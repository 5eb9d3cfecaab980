"""Train a LoRA adapter in float32 on a frozen bfloat16 base.

verl casts the adapter to the precision of its base, since FSDP1 joins both in one flat tensor. FSDP2, which trains
on GPUs, does not. In bfloat16 the plan's learning rate would be lost: a step of 1e-5 leaves most entries of a fresh
adapter where they were, since their next bfloat16 neighbour is more than twice as far away.
"""

from types import ModuleType
from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported


@when_imported("verl.workers.engine.fsdp.transformer_impl")
def train_adapter_in_float32(module: ModuleType) -> None:
    import torch

    build = module.FSDPEngine._build_lora_module

    def build_lora_module(self: Any, base: Any) -> Any:
        adapted = build(self, base)
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(torch.float32)
        return adapted

    module.FSDPEngine._build_lora_module = build_lora_module
