"""The two classes that verl needs for a rollout: one starts the server, the other one sends the actor's weights."""

import os
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica
from verl.workers.rollout.utils import ensure_async_iterator

from standins.verl_cpu.rollout import SERVER, GenerateServer


class GenerateReplica(RolloutReplica):  # type: ignore[misc]
    """Replica that starts the server that writes the answers."""

    async def launch_servers(self) -> None:
        options = {"name": SERVER.format(self.replica_rank), "max_concurrency": self.max_concurrency, "num_cpus": 0}
        server = (
            ray.remote(GenerateServer)
            .options(**options)
            .remote(self.model_config["path"], self.config.response_length, self.config.max_num_seqs)
        )
        await server.ready.remote()
        self.servers = [server]
        self._server_handle, self._server_address = server, SERVER.format(self.replica_rank)


class GenerateAdapter(BaseRollout):  # type: ignore[misc]
    """Adapter in each process of the actor, which sends the weights to the server of the same rank."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        self.sleep_level = 2
        self._rank = int(os.environ["RANK"])

    async def resume(self, tags: list[str]) -> None:
        return None

    async def release(self) -> None:
        return None

    @torch.no_grad()
    async def update_weights(self, weights: Any, global_steps: int | None = None, **named: Any) -> None:
        """Gather all weights on each rank, and send them to the server of the same rank."""
        whole = {}
        async for name, tensor in ensure_async_iterator(weights):
            whole[name] = tensor.detach().to("cpu", torch.float32, copy=True)
        await ray.get_actor(SERVER.format(self._rank)).load_weights.remote(whole, global_steps)
