"""Train a LoRA adapter in float32 on a frozen bfloat16 base.

verl casts the adapter to the precision of its base (FSDPEngine._build_lora_module), since FSDP1 needs one precision
in its flat tensors. FSDP2, with which we train on GPUs, does not. In bfloat16 a step of 1e-5, the default learning
rate, would not change most entries of a new adapter, since the next bfloat16 number is over twice as far away.
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
