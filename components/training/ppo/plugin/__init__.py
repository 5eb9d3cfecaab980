"""What verl loads into each of its processes, by VERL_USE_EXTERNAL_MODULES. Nothing of verl's own files is changed.

lora_guard.py     LoRA, KL and a critic together: on GPUs too
critic_seed.py    the critic's first weights follow from its seed: on GPUs too
outage.py         no update after a reward that failed: on GPUs too
reward_terms.py   each reward term among verl's metrics: on GPUs too
ray_start_retry.py  Ray is started again where a busy machine was too slow for it: on GPUs too
cpu.py            a machine without a GPU: loads what is below
  cpu_platform.py   verl's platform "cpu"
  patches.py        places in verl and torch that take a GPU for granted
  rollout.py        a server that writes a step's answers, and rollout_adapter.py, verl's two ends of it
  step_rollouts.py  a step's rollouts, rewards and storing as one batch
  packed_engine.py  verl's engines without padding, by packing.py
  jagged.py         rows of a nested batch taken at once
parallel_critic.py  on one machine's CPUs, the critic computes while the actor does
fork_server.py    all of verl's processes are forked from one that has imported torch
import_hooks.py   a patch waits for its module, so that no process imports what it does not use
"""

COMMON_MODULES = ("ray_start_retry", "lora_guard", "critic_seed", "outage", "reward_terms")
COMMON_PLUGINS = tuple(f"components.training.ppo.plugin.{name}" for name in COMMON_MODULES)
CPU_PLUGINS = (*COMMON_PLUGINS, "components.training.ppo.plugin.cpu")
SINGLE_MACHINE_CPU_PLUGINS = (*CPU_PLUGINS, "components.training.ppo.plugin.parallel_critic")
