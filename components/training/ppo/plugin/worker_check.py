"""End the training if a rollout worker died, since verl would wait for its responses for ever.

If a machine's memory is full, Ray kills these workers first
(https://docs.ray.io/en/latest/ray-core/scheduling/ray-oom-prevention.html). verl sends prompts to the workers, and
then only counts the responses (trainer/ppo/v1/replay_buffer.py).
"""

from types import ModuleType
from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported
from qinglan.errors import TrainingError

_workers: list[Any] = []
"""Workers that got the newest prompts."""


@when_imported("verl.trainer.ppo.v1.agent_loop_tq")
def remember_workers(module: ModuleType) -> None:
    hand_out = module.AgentLoopManagerTQ.generate_sequences

    def generate_sequences(self: Any, prompts: Any) -> Any:
        _workers[:] = self.agent_loop_workers
        return hand_out(self, prompts)

    module.AgentLoopManagerTQ.generate_sequences = generate_sequences


@when_imported("verl.trainer.ppo.v1.replay_buffer")
def check_while_waiting(module: ModuleType) -> None:
    wait = module.ReplayBuffer._wait_for_next_poll

    def wait_for_next_poll(self: Any, *args: Any) -> Any:
        check_workers()
        return wait(self, *args)

    module.ReplayBuffer._wait_for_next_poll = wait_for_next_poll


def check_workers() -> None:
    """Call each worker; a TrainingError if one is dead, which Ray reports at once."""
    import ray

    try:
        ray.get([worker.__ray_ready__.remote() for worker in _workers])
    except ray.exceptions.RayActorError as error:
        raise TrainingError(
            "A process that answers prompts is dead, and its answers would never come. If Ray's lines above speak of "
            "memory, give the machine more, or take a smaller ppo.collection."
        ) from error
