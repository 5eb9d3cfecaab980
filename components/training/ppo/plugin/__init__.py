"""Patches that verl loads into each of its processes, by VERL_USE_EXTERNAL_MODULES; its files stay unchanged.

lora_guard.py         LoRA, KL and a critic together
adapter_precision.py  an adapter is trained in float32, also on a bfloat16 base
first_weights.py      the first weights of adapter and critic follow from the seed
value_head.py         the critic takes the attention of its settings
weight_transfer.py    a limit for the wait between actor and vLLM; a socket of the training's own
worker_check.py       an error instead of a wait where a process that answers prompts is dead
outage.py             no update after a reward that failed
reward_terms.py       each reward term among verl's metrics
ray_start_retry.py    Ray is started again where a busy machine was too slow for it
import_hooks.py       a patch waits for its module, so that no process imports what it does not use
"""

COMMON_MODULES = (
    "ray_start_retry", "lora_guard", "adapter_precision", "first_weights", "value_head", "weight_transfer",
    "worker_check", "outage", "reward_terms",
)  # fmt: skip
COMMON_PLUGINS = tuple(f"components.training.ppo.plugin.{name}" for name in COMMON_MODULES)
