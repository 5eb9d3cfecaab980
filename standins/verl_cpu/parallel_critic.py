"""Run the critic at the same time as the actor, by a "sync" trainer of verl for the CPUs of one machine.

verl's processes take turns: first the reference, then the values; first the critic's update, then the actor's. On a
GPU they share memory and time. On a CPU each process uses one core, and neither process of a pair needs the other's
result.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import ModuleType
from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported

POOL = "critic_pool"


@when_imported("verl.trainer.ppo.v1.trainer_sync")
def register_parallel_critic(module: ModuleType) -> None:
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY, Role

    class CriticBeside(module.PPOTrainerSync):  # type: ignore[misc, name-defined]
        """Trainer that starts each call of the critic before the actor's call, and waits for it afterwards."""

        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self._beside = ThreadPoolExecutor(1)
            self._critics: Future[dict[str, Any]] = Future()

        def _init_resource_pool_mgr(self) -> None:
            super()._init_resource_pool_mgr()
            if Role.Critic in self.mapping:
                spec = self.resource_pool_manager.resource_pool_spec
                spec[POOL] = list(spec[self.mapping[Role.Critic]])
                self.mapping[Role.Critic] = POOL

        def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
            """Compute the actor's log probabilities before its update, while the critic computes its values."""
            if self.use_critic:
                self._begin(super()._compute_values, batch)
            return super()._compute_old_log_prob(batch, metrics)

        def _compute_values(self, batch: Any, metrics: dict[str, Any]) -> Any:
            metrics.update(self._critics.result())
            return batch

        def _update_critic(self, batch: Any, metrics: dict[str, Any]) -> Any:
            self._begin(super()._update_critic, batch)
            return batch

        def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
            batch = super()._update_actor(batch, metrics)
            if self.use_critic:
                metrics.update(self._critics.result())
            return batch

        def _begin(self, of_critic: Any, batch: Any) -> None:
            # On a copy, since verl writes a call's arguments into its batch, and the actor's call has others.
            def work(copy: Any) -> dict[str, Any]:
                metrics: dict[str, Any] = {}
                of_critic(copy, metrics)
                return metrics

            self._critics = self._beside.submit(work, replace(batch))

    TRAINER_REGISTRY["sync"] = CriticBeside
