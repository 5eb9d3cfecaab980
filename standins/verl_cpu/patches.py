"""Places in verl and torch that take a GPU for granted: what each does here instead, and our rollout by its name."""

import functools
import os
from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported
from standins.verl_cpu import fork_server
from standins.verl_cpu.settings import CPU_ROLLOUT, HERE, PACKED_ATTENTION


@when_imported("verl.utils.distributed")
def _gloo_only_backend(module: Any) -> None:
    """torch refuses "cpu:gloo,cpu:gloo", which is what verl's "cpu and accelerator" comes to."""
    both = module.initialize_global_process_group_ray

    def initialize(timeout_second: float | None = None, backend: str | None = None) -> Any:
        return both(timeout_second, backend or "gloo")

    module.initialize_global_process_group_ray = initialize


@when_imported("verl.utils.model")
def _critic_attention(module: Any) -> None:
    """The critic's loader names flash attention, whatever the configuration says."""

    def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path, dtype=torch_dtype, config=model_config, attn_implementation=PACKED_ATTENTION
        )

    module.load_valuehead_model = load_valuehead_model


@when_imported("verl.utils.fsdp_utils")
def _skip_offloading(module: Any) -> None:
    """Moving weights to the GPU and back: they are where they belong."""
    for name in (
        "load_fsdp_model_to_gpu", "offload_fsdp_model_to_cpu", "load_fsdp_optimizer", "offload_fsdp_optimizer"
    ):  # fmt: skip
        setattr(module, name, lambda *args, **named: None)


@when_imported("torch.distributed.fsdp._init_utils")
def _gloo_broadcasts(module: Any) -> None:
    """FSDP insists on GPU tensors to broadcast the first weights; gloo takes these."""
    module._check_module_states_for_sync_module_states = lambda module_states: None


@when_imported("torch.distributed.fsdp")
def _no_pinned_memory(module: Any) -> None:
    """verl offloads the reference to pinned memory, which needs an accelerator."""
    module.CPUOffload = lambda offload_params=False: None


@when_imported("verl.workers.engine.fsdp.transformer_impl")
def _register_engines(module: Any) -> None:
    from standins.verl_cpu import packed_engine  # noqa: F401 (registers the engines)


@when_imported("verl.trainer.ppo.v1.replay_buffer")
def _wait_for_samples(module: Any) -> None:
    """verl looks every two seconds for samples that are ready; a step's come together, when they are written."""

    def wait(self: Any, partition_id: str, last_debug_time: float) -> float:
        from standins.verl_cpu.step_rollouts import StepRollouts

        StepRollouts.current.wait_for_samples()
        return last_debug_time

    module.ReplayBuffer._wait_for_next_poll = wait


@when_imported("verl.trainer.ppo.v1.trainer_base")
def _wait_for_rewards(module: Any) -> None:
    """Advantages are the first that needs rewards."""
    compute = module.PPOTrainer._compute_advantage

    def compute_advantage(self: Any, *args: Any, **named: Any) -> Any:
        self.agent_loop_manager.wait_for_rewards()
        return compute(self, *args, **named)

    module.PPOTrainer._compute_advantage = compute_advantage


@when_imported("verl.workers.rollout.base")
def _register_adapter(module: Any) -> None:
    module._ROLLOUT_REGISTRY[(CPU_ROLLOUT, "async")] = f"{HERE}.rollout_adapter.GenerateAdapter"


@when_imported("verl.workers.rollout.replica")
def _register_replica(module: Any) -> None:
    def load() -> Any:
        from standins.verl_cpu.rollout_adapter import GenerateReplica

        return GenerateReplica

    module.RolloutReplicaRegistry.register(CPU_ROLLOUT, load)


@when_imported("ray._private.parameter")
def _fork_ray_workers(module: Any) -> None:
    if fork_server.SOCKET_VARIABLE in os.environ:
        begin = module.RayParams.__init__
        module.RayParams.__init__ = functools.partialmethod(begin, setup_worker_path=fork_server.__file__)


@when_imported("ray._private.node")
def _skip_monitor_and_dashboard(module: Any) -> None:
    """One machine neither scales nor is looked at; Ray has no setting that leaves these two out."""
    module.Node.start_monitor = lambda self: None
    module.Node.start_api_server = lambda self, **named: None


@when_imported("ray._private.utils")
def _agent_without_dashboard(module: Any) -> None:
    """Ray's agent of a node, without the web server that it has for the dashboard."""
    module.get_dashboard_dependency_error = lambda: ImportError("no dashboard is wanted")
