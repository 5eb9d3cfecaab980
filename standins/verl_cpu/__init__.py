"""verl's GPUs, played by a CPU: what the ppo stage loads where a profile says `hardware.plugin: standins.verl_cpu`.

Nothing of verl's own files is changed: it imports these modules into each of its processes, by
VERL_USE_EXTERNAL_MODULES, after those of components/training/ppo/plugin.

settings.py         how the stage starts verl here: modules, environment, settings
cpu_platform.py     verl's platform "cpu"
patches.py          places in verl and torch that take a GPU for granted
rollout.py          a server that writes a step's answers, and rollout_adapter.py, verl's two ends of it
step_rollouts.py    a step's rollouts, rewards and storing as one batch
packed_engine.py    verl's engines without padding, by packing.py
jagged.py           rows of a nested batch taken at once
parallel_critic.py  on one machine's CPUs, the critic computes while the actor does
fork_server.py      all of verl's processes are forked from one that has imported torch
"""

from standins.verl_cpu.settings import driver, environment, modules, overrides

__all__ = ["driver", "environment", "modules", "overrides"]
