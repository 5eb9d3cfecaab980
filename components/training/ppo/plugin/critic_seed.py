"""Draw the critic's value head by its seed. verl reads `critic.fsdp.seed` only in its fully deterministic mode, which
forbids other operations too; without this patch the head would be different in each training.
"""

from types import ModuleType
from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported


@when_imported("verl.workers.engine.fsdp.transformer_impl")
def draw_by_seed(module: ModuleType) -> None:
    import torch

    build = module.FSDPEngineWithValueHead.initialize

    def initialize(self: Any) -> Any:
        torch.manual_seed(self.engine_config.seed)
        return build(self)

    module.FSDPEngineWithValueHead.initialize = initialize
