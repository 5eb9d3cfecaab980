"""Make LoRA on the actor, a KL reference and a critic work in one training; verl 0.9.1 fails without this.

With LoRA the reference is the actor with its adapter off, asked for by `no_lora_adapter` in the batch's extra_info.
verl leaves that word there; the critic's pass comes next, reads it, and fails: a critic has no adapter to turn off.
"""

from types import ModuleType
from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported


@when_imported("verl.trainer.ppo.v1.trainer_base")
def clear_lora_flag(module: ModuleType) -> None:
    """Remove the flag after the reference's pass."""
    unguarded = module.PPOTrainer._compute_ref_log_prob

    def compute_ref_log_prob(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = unguarded(self, batch, metrics)
        batch.extra_info.pop("no_lora_adapter", None)
        return batch

    module.PPOTrainer._compute_ref_log_prob = compute_ref_log_prob
