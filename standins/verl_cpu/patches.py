"""Patches of functions in verl, torch and Ray that require a GPU or a cluster, for both rollouts."""

import functools
import os
from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported
from standins.verl_cpu import fork_server


# verl names a backend for the CPU and one for the accelerator: "cpu:gloo,cpu:gloo" here, which torch refuses.
# https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group
@when_imported("verl.utils.distributed")
def _gloo_only_backend(module: Any) -> None:
    both = module.initialize_global_process_group_ray

    def initialize(timeout_second: float | None = None, backend: str | None = None) -> Any:
        return both(timeout_second, backend or "gloo")

    module.initialize_global_process_group_ray = initialize


# There is no second memory to move weights to.
@when_imported("verl.utils.fsdp_utils")
def _skip_offloading(module: Any) -> None:
    for name in (
        "load_fsdp_model_to_gpu", "offload_fsdp_model_to_cpu", "load_fsdp_optimizer", "offload_fsdp_optimizer"
    ):  # fmt: skip
        setattr(module, name, lambda *args, **named: None)


# torch's check requires GPU tensors to broadcast the first weights (`sync_module_states`), but gloo broadcasts CPU
# tensors: https://docs.pytorch.org/docs/stable/fsdp.html
@when_imported("torch.distributed.fsdp._init_utils")
def _gloo_broadcasts(module: Any) -> None:
    module._check_module_states_for_sync_module_states = lambda module_states: None


# FSDP1 offloads the reference with pinned memory, which needs an accelerator.
@when_imported("torch.distributed.fsdp")
def _no_pinned_memory(module: Any) -> None:
    module.CPUOffload = lambda offload_params=False: None


# FSDP2 can offload without pinned memory, but verl does not set it.
# https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.CPUOffloadPolicy
@when_imported("verl.workers.engine.fsdp.transformer_impl")
def _offload_without_pinned_memory(module: Any) -> None:
    from torch.distributed.fsdp import CPUOffloadPolicy

    module.CPUOffloadPolicy = lambda pin_memory=True: CPUOffloadPolicy(pin_memory=False)


# Ray starts the file at `setup_worker_path` for each worker, and has no public setting for it.
# https://github.com/ray-project/ray/blob/master/python/ray/_private/parameter.py
@when_imported("ray._private.parameter")
def _fork_ray_workers(module: Any) -> None:
    if fork_server.SOCKET_VARIABLE in os.environ:
        begin = module.RayParams.__init__
        module.RayParams.__init__ = functools.partialmethod(begin, setup_worker_path=fork_server.__file__)


# One machine needs neither autoscaler monitor nor dashboard, but Ray starts both without a setting.
# https://github.com/ray-project/ray/blob/master/python/ray/_private/node.py
@when_imported("ray._private.node")
def _skip_monitor_and_dashboard(module: Any) -> None:
    module.Node.start_monitor = lambda self: None
    module.Node.start_api_server = lambda self, **named: None


# Ray's node agent starts a web server unless the dashboard's packages are missing.
@when_imported("ray._private.utils")
def _agent_without_dashboard(module: Any) -> None:
    module.get_dashboard_dependency_error = lambda: ImportError("no dashboard is wanted")
