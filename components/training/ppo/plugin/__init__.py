"""Patches of verl 0.9.1. verl loads them into each of its processes by VERL_USE_EXTERNAL_MODULES.

Each patch names the code in verl that makes it necessary. If verl changes that code,
tests/components/training/ppo/test_ppo_in_verl.py fails.

lora_guard.py         allows LoRA, KL and a critic in one training
adapter_precision.py  trains an adapter in float32, also on a bfloat16 base
first_weights.py      draws the initial weights of adapter and critic by the seed
value_head.py         loads the critic with the attention of its settings
weight_transfer.py    limits how long actor and vLLM wait for each other; puts their socket into the training's folder
worker_check.py       raises an error if a rollout worker died; verl itself would wait for ever
outage.py             stops before an update after a failed reward
reward_terms.py       adds each reward term to verl's metrics
ray_start_retry.py    starts Ray again if a busy machine was too slow
import_hooks.py       applies a patch when its module is imported, so that no process imports unused modules
"""

COMMON_MODULES = (
    "ray_start_retry", "lora_guard", "adapter_precision", "first_weights", "value_head", "weight_transfer",
    "worker_check", "outage", "reward_terms",
)  # fmt: skip
COMMON_PLUGINS = tuple(f"components.training.ppo.plugin.{name}" for name in COMMON_MODULES)
