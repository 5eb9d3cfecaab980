"""Stop the training before the update that follows an outage.

verl would drop the samples whose reward failed, pad the batch and train on the rest
(trainer/ppo/v1/replay_buffer.py).
"""

from pathlib import Path
from types import ModuleType
from typing import Any

import orjson

from components.training.ppo.plugin.import_hooks import when_imported
from qinglan.reward.outage import read_outage


@when_imported("verl.trainer.ppo.v1.trainer_base")
def stop_on_outage(module: ModuleType) -> None:
    # _balance_batch is the first step after the rollout, before anything learns from it.
    trusting = module.PPOTrainer._balance_batch

    def balance_batch(self: Any, batch: Any, *args: Any, **named: Any) -> Any:
        settings = Path(self.config.reward.custom_reward_function.reward_kwargs.settings)
        if (outage := read_outage(Path(orjson.loads(settings.read_bytes())["folder"]))) is not None:
            raise outage
        return trusting(self, batch, *args, **named)

    module.PPOTrainer._balance_batch = balance_batch
