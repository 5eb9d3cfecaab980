"""Run verl on a CPU instead of GPUs. The ppo stage uses this if a profile sets `hardware.plugin: standins.verl_cpu`.

No file of verl is changed. verl imports these modules into each of its processes, because VERL_USE_EXTERNAL_MODULES
names them after the modules of components/training/ppo/plugin.

settings.py         settings with which the stage starts verl: modules, environment, overrides
cpu_platform.py     verl's platform "cpu"
patches.py          patches of functions in verl, torch and Ray that require a GPU or a cluster
rollout_patches.py  the laptop's rollout and engines, registered with verl
rollout.py          a server that writes a step's answers; rollout_adapter.py connects verl to it
step_rollouts.py    a step's rollouts and rewards, computed and stored as one batch
packed_engine.py    verl's engines without padding, with packing.py
parallel_critic.py  the critic computes at the same time as the actor, on one machine
fork_server.py      all processes of verl are forked from one that has imported torch
vllm_device.py      a second device, which runs verl as on GPUs, with vLLM's rollout; vllm_patches.py
"""

from standins.verl_cpu.settings import driver, environment, modules, overrides

__all__ = ["driver", "environment", "modules", "overrides"]
