"""Register the laptop's rollout and engines with verl, and replace polling by waiting."""

from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported
from standins.verl_cpu.settings import CPU_ROLLOUT, HERE


@when_imported("verl.workers.engine.fsdp.transformer_impl")
def _register_engines(module: Any) -> None:
    from standins.verl_cpu import packed_engine  # noqa: F401 (registers the engines)


# A step's samples are ready at the same time, but verl polls its queue every two seconds.
@when_imported("verl.trainer.ppo.v1.replay_buffer")
def _wait_for_samples(module: Any) -> None:

    def wait(self: Any, partition_id: str, last_debug_time: float) -> float:
        from standins.verl_cpu.step_rollouts import StepRollouts

        StepRollouts.current.wait_for_samples()
        return last_debug_time

    module.ReplayBuffer._wait_for_next_poll = wait


# Advantages are the first computation that needs the rewards. Until then rewards and verl's passes run in parallel.
@when_imported("verl.trainer.ppo.v1.trainer_base")
def _wait_for_rewards(module: Any) -> None:
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
