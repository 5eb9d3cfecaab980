"""Patches of functions in verl, torch and Ray that require a GPU or a cluster, for both rollouts."""

import functools
import os
from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported
from standins.verl_cpu import fork_server


@when_imported("verl.utils.distributed")
def _gloo_only_backend(module: Any) -> None:
    """Use only gloo. verl's setting for CPU and accelerator would be "cpu:gloo,cpu:gloo", which torch refuses."""
    both = module.initialize_global_process_group_ray

    def initialize(timeout_second: float | None = None, backend: str | None = None) -> Any:
        return both(timeout_second, backend or "gloo")

    module.initialize_global_process_group_ray = initialize


@when_imported("verl.utils.fsdp_utils")
def _skip_offloading(module: Any) -> None:
    """Do not move weights to the GPU and back; they stay in memory."""
    for name in (
        "load_fsdp_model_to_gpu", "offload_fsdp_model_to_cpu", "load_fsdp_optimizer", "offload_fsdp_optimizer"
    ):  # fmt: skip
        setattr(module, name, lambda *args, **named: None)


@when_imported("torch.distributed.fsdp._init_utils")
def _gloo_broadcasts(module: Any) -> None:
    """Skip the check that requires GPU tensors to broadcast the first weights; gloo broadcasts CPU tensors."""
    module._check_module_states_for_sync_module_states = lambda module_states: None


@when_imported("torch.distributed.fsdp")
def _no_pinned_memory(module: Any) -> None:
    """Turn off offloading of the reference by FSDP1, which needs pinned memory and so an accelerator."""
    module.CPUOffload = lambda offload_params=False: None


@when_imported("verl.workers.engine.fsdp.transformer_impl")
def _offload_without_pinned_memory(module: Any) -> None:
    """Let FSDP2 offload the reference without pinned memory."""
    from torch.distributed.fsdp import CPUOffloadPolicy

    module.CPUOffloadPolicy = lambda pin_memory=True: CPUOffloadPolicy(pin_memory=False)


@when_imported("ray._private.parameter")
def _fork_ray_workers(module: Any) -> None:
    if fork_server.SOCKET_VARIABLE in os.environ:
        begin = module.RayParams.__init__
        module.RayParams.__init__ = functools.partialmethod(begin, setup_worker_path=fork_server.__file__)


@when_imported("ray._private.node")
def _skip_monitor_and_dashboard(module: Any) -> None:
    """Start Ray without autoscaler monitor and dashboard, for which Ray has no setting; one machine needs neither."""
    module.Node.start_monitor = lambda self: None
    module.Node.start_api_server = lambda self, **named: None


@when_imported("ray._private.utils")
def _agent_without_dashboard(module: Any) -> None:
    module.get_dashboard_dependency_error = lambda: ImportError("no dashboard is wanted")
