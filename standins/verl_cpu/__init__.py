"""A CPU in place of verl's GPUs; loaded by the ppo stage if a profile sets `hardware.plugin: standins.verl_cpu`.

Nothing of verl's own files is changed: it imports these modules into each of its processes, by
VERL_USE_EXTERNAL_MODULES, after those of components/training/ppo/plugin.

settings.py         how the stage starts verl here: modules, environment, settings
cpu_platform.py     verl's platform "cpu"
patches.py          patches of functions in verl, torch and Ray that require a GPU or a cluster
rollout_patches.py  the laptop's rollout and engines, registered with verl
rollout.py          a server that writes a step's answers; rollout_adapter.py connects verl to it
step_rollouts.py    a step's rollouts, rewards and storing as one batch
packed_engine.py    verl's engines without padding, by packing.py
parallel_critic.py  on one machine's CPUs, the critic computes while the actor does
fork_server.py      all of verl's processes are forked from one that has imported torch
vllm_device.py      a second device: verl as it runs on GPUs, with vLLM's own rollout; vllm_patches.py
"""

from standins.verl_cpu.settings import driver, environment, modules, overrides

__all__ = ["driver", "environment", "modules", "overrides"]
