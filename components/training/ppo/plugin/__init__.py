"""Patches that verl loads into each of its processes, by VERL_USE_EXTERNAL_MODULES; its files stay unchanged.

lora_guard.py       LoRA, KL and a critic together
critic_seed.py      the critic's first weights follow from its seed
outage.py           no update after a reward that failed
reward_terms.py     each reward term among verl's metrics
ray_start_retry.py  Ray is started again where a busy machine was too slow for it
import_hooks.py     a patch waits for its module, so that no process imports what it does not use
"""

COMMON_MODULES = ("ray_start_retry", "lora_guard", "critic_seed", "outage", "reward_terms")
COMMON_PLUGINS = tuple(f"components.training.ppo.plugin.{name}" for name in COMMON_MODULES)
