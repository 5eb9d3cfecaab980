"""The settings nearest to a profile's with which a training fits: the fewest changes, and of those the mildest."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from pipelines.rewriter import RunConfig
from pipelines.sizing.changes import Change, with_changes
from pipelines.sizing.needs import Models, rewriter_models
from qinglan.errors import ConfigError
from qinglan.sizing.shape import known_shapes

MOST_CHANGES, SHOWN = 3, 3
CRITICS = ("Qwen/Qwen3-4B", "Qwen/Qwen3-1.7B", "Qwen/Qwen3-0.6B")


def nearest_changes(
    config: RunConfig, stage: str, fits: Callable[[RunConfig, Models], bool]
) -> list[tuple[Change, ...]]:
    """Up to three sets of changes of `stage` with which it fits, all as small as can be."""
    candidates = [*(_sft_changes(config) if stage == "sft" else _ppo_changes(config))]
    for count in range(1, MOST_CHANGES + 1):
        fitting: list[tuple[Change, ...]] = []
        for changes in combinations(candidates, count):
            if len({change.setting for change in changes}) == count and _fit(config, changes, fits):
                fitting.append(changes)
            if len(fitting) == SHOWN:
                break
        if fitting:
            return fitting
    return []


def _fit(config: RunConfig, changes: Sequence[Change], fits: Callable[[RunConfig, Models], bool]) -> bool:
    try:
        changed = with_changes(config, changes, "advice")
    except ConfigError:
        return False  # settings that cannot be together
    models = rewriter_models(changed)
    return models is not None and fits(changed, models)


def _sft_changes(config: RunConfig) -> Iterator[Change]:
    sft = config.sft
    if sft.batch > 1:
        yield Change("sft.batch", 1)
    for length in (1024, 512):
        if length < sft.max_length:
            yield Change("sft.max_length", length)
    if sft.tuner == "full":
        yield Change("sft.tuner", "lora")
    if sft.deepspeed != "zero3" and sft.gpus * sft.nodes > 1:
        yield Change("sft.deepspeed", "zero3")
    yield Change("sft.gpus", 2 * sft.gpus)


def _ppo_changes(config: RunConfig) -> Iterator[Change]:
    ppo, hardware = config.ppo, config.ppo.hardware
    if ppo.lora.rank and hardware.dtype != "bfloat16":
        yield Change("ppo.hardware.dtype", "bfloat16")
    if ppo.advantage == "gae":
        models, shapes = rewriter_models(config), known_shapes()
        for name in CRITICS:
            if models and models.critic and shapes[name].parameters < models.critic.parameters:
                yield Change("ppo.critic_model", name)
    if not hardware.offload:
        yield Change("ppo.hardware.offload", True)
    for share in (0.4, 0.3, 0.5, 0.6, 0.7, 0.8):
        if share != hardware.rollout_memory:
            yield Change("ppo.hardware.rollout_memory", share)
    yield Change("ppo.accumulation", 2 * ppo.accumulation)
    if not ppo.lora.rank:
        yield Change("ppo.lora.rank", 64)
    if hardware.nodes == 1 and hardware.per_node < 8:
        yield Change("ppo.hardware.per_node", 8)
    yield Change("ppo.hardware.nodes", 2 * hardware.nodes)
