"""Make LoRA on the actor, a KL reference and a critic work in one training.

With LoRA the reference is the actor without its adapter. verl requests it by the flag `no_lora_adapter` in the
batch's extra_info (trainer/ppo/v1/trainer_base.py, _compute_ref_log_prob), and does not remove the flag. The critic's
pass comes next, reads the flag (workers/engine_workers.py), and fails, since a critic has no adapter.
"""

from types import ModuleType
from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported


@when_imported("verl.trainer.ppo.v1.trainer_base")
def clear_lora_flag(module: ModuleType) -> None:
    unguarded = module.PPOTrainer._compute_ref_log_prob

    def compute_ref_log_prob(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = unguarded(self, batch, metrics)
        batch.extra_info.pop("no_lora_adapter", None)
        return batch

    module.PPOTrainer._compute_ref_log_prob = compute_ref_log_prob
