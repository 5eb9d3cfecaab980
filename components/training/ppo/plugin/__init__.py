"""What verl loads into each of its processes, by VERL_USE_EXTERNAL_MODULES. Nothing of verl's own files is changed.

lora_guard.py     LoRA, KL and a critic together: on GPUs too
critic_seed.py    the critic's first weights follow from its seed: on GPUs too
outage.py         no update after a reward that failed: on GPUs too
terms.py          each reward term among verl's metrics: on GPUs too
starting.py       Ray is started again where a busy machine was too slow for it: on GPUs too
cpu.py            a machine without a GPU: loads what is below
  cpu_platform.py   verl's platform "cpu"
  patches.py        places in verl and torch that take a GPU for granted
  rollout.py        a server that writes a step's answers, and rollout_adapter.py, verl's two ends of it
  step_rollouts.py  a step's rollouts, rewards and storing as one batch
  engine.py         verl's engines without padding, by line.py
  jagged.py         rows of a nested batch taken at once
critic_beside.py  on one machine's CPUs, the critic computes while the actor does
forking.py        all of verl's processes are forked from one that has imported torch
importing.py      a patch waits for its module, so that no process imports what it does not use
"""

EACH = ("starting", "lora_guard", "critic_seed", "outage", "terms")
EVERYWHERE = tuple(f"components.training.ppo.plugin.{name}" for name in EACH)
ON_CPU = (*EVERYWHERE, "components.training.ppo.plugin.cpu")
ON_ONE_CPU = (*ON_CPU, "components.training.ppo.plugin.critic_beside")
