"""The critic's first weights follow from its seed: verl reads `critic.fsdp.seed` in a mode of its own alone, which
forbids every operation that is not deterministic. The head that says values is drawn anew for each training.
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
