"""Draw the initial weights of an adapter and of the critic's value head by the training's seed.

verl reads an engine's seed only in its fully deterministic mode (workers/engine/fsdp/transformer_impl.py,
enable_full_determinism), in which some operations are forbidden.
"""

from types import ModuleType
from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported


@when_imported("verl.workers.engine.fsdp.transformer_impl")
def draw_by_seed(module: ModuleType) -> None:
    import torch

    build = module.FSDPEngine.initialize

    def initialize(self: Any) -> Any:
        torch.manual_seed(self.engine_config.seed)
        return build(self)

    module.FSDPEngine.initialize = initialize
