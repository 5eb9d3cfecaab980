"""Add the terms of the reward to a step's metrics as reward/<figure>, so that every logger of verl writes them.

In training verl logs only the total reward; the terms are stored with the samples. The gateway's calls and cache hits
since the training began are added too, because trackers get their figures from verl.
"""

import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported
from qinglan.reward.summary import summarise_rollouts

GATEWAY_VARIABLE = "QINGLAN_REWARD_GATEWAY"
"""Environment variable with the gateway's URL."""


@when_imported("verl.trainer.ppo.v1.trainer_base")
def log_reward_terms(module: ModuleType) -> None:
    from components.training.ppo.gateway_usage import GatewayUsage  # only the trainer's process needs it

    silent = module.PPOTrainer._compute_metrics
    gateway = os.environ.get(GATEWAY_VARIABLE)
    usage = GatewayUsage(gateway) if gateway else dict[str, float]

    def compute_metrics(self: Any, batch: Any, metrics: dict[str, Any], *args: Any, **named: Any) -> None:
        silent(self, batch, metrics, *args, **named)
        # On a CPU our own manager has the figures. verl's manager puts them into its transfer queue.
        cached = getattr(self.agent_loop_manager, "figures", None)
        terms, spent = cached or _queued(module.tq, batch)
        if cached:  # verl has waited for the rewards while it computed advantages
            metrics["timing_s/adv"] -= spent["seconds_unhidden"]
        figures = summarise_rollouts(terms) | spent | usage()
        metrics.update({f"reward/{name}": value for name, value in figures.items()})

    module.PPOTrainer._compute_metrics = compute_metrics


def _queued(queue: Any, batch: Any) -> tuple[list[dict[str, float]], dict[str, float]]:
    data = queue.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields", "metrics"]
    )
    fields, timings = (data.pop(name).tolist() for name in ("extra_fields", "metrics"))
    return [field["reward_extra_info"] for field in fields], reward_seconds(timings)


def reward_seconds(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean seconds to compute a reward, and the seconds in which nothing but rewards was computed."""
    written = [sample["generate_sequences"] for sample in samples]
    scored = [sample["generate_sequences"] + sample["compute_score"] for sample in samples]
    return {
        "seconds_mean": (sum(scored) - sum(written)) / len(samples),
        "seconds_unhidden": max(scored) - max(written),
    }
