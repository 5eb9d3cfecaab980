"""No update on what an outage left of a batch: verl drops the samples whose reward failed, and would go on."""

from pathlib import Path
from types import ModuleType
from typing import Any

import orjson

from components.training.ppo.plugin.import_hooks import when_imported
from qinglan.reward.outage import read_outage


@when_imported("verl.trainer.ppo.v1.trainer_base")
def stop_on_outage(module: ModuleType) -> None:
    """Look between the rollout and everything that learns from it."""
    trusting = module.PPOTrainer._balance_batch

    def balance_batch(self: Any, batch: Any, *args: Any, **named: Any) -> Any:
        settings = Path(self.config.reward.custom_reward_function.reward_kwargs.settings)
        if (said := read_outage(Path(orjson.loads(settings.read_bytes())["folder"]))) is not None:
            raise said
        return trusting(self, batch, *args, **named)

    module.PPOTrainer._balance_batch = balance_batch
