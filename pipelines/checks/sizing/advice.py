"""Find the settings nearest to a profile's with which a training fits: the fewest and smallest changes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations

from components.training.style.config import DistilConfig, StyleConfig
from pipelines.checks.sizing.changes import Change, Line, with_changes
from pipelines.checks.sizing.needs import rewriter_models
from pipelines.lines.rewriter import RunConfig
from pipelines.lines.style import StyleRunConfig
from qinglan.errors import ConfigError
from qinglan.sizing.shape import known_shapes

MOST_CHANGES, SHOWN = 3, 3
MOST_CARDS = 8
"""Cards of the largest common machine."""

CRITICS = ("Qwen/Qwen3-4B", "Qwen/Qwen3-1.7B", "Qwen/Qwen3-0.6B")


def nearest_changes(
    config: Line, candidates: Iterable[Change], fits: Callable[[Line], bool]
) -> list[tuple[Change, ...]]:
    """Up to three smallest sets of changes with which it fits.

    Of sets that change the same settings the first is taken, so candidates of a setting come smallest first.
    """
    candidates = [*candidates]
    for count in range(1, MOST_CHANGES + 1):
        fitting: dict[frozenset[str], tuple[Change, ...]] = {}
        for changes in combinations(candidates, count):
            settings = frozenset(change.setting for change in changes)
            if len(settings) == count and settings not in fitting and _fit(config, changes, fits):
                fitting[settings] = changes
            if len(fitting) == SHOWN:
                break
        if fitting:
            return [*fitting.values()]
    return []


def _fit(config: Line, changes: Sequence[Change], fits: Callable[[Line], bool]) -> bool:
    try:
        return fits(with_changes(config, changes, "advice"))
    except ConfigError:
        return False  # settings that cannot be together


def rewriter_changes(config: RunConfig, stage: str) -> Iterator[Change]:
    """Changes of `sft` or `ppo` that may make it fit."""
    return _sft_changes(config) if stage == "sft" else _ppo_changes(config)


def style_changes(config: StyleRunConfig, stage: str) -> Iterator[Change]:
    """Changes of `style` or `distil` that may make it fit."""
    settings: StyleConfig | DistilConfig = config.style if stage == "style" else config.distil
    if not settings.checkpointing and settings.device == "cuda":
        yield Change(f"{stage}.checkpointing", True)
    yield from (Change(f"{stage}.batch", batch) for batch in _halves(settings.batch))
    if isinstance(settings, StyleConfig) and not settings.lora_rank:
        yield Change("style.lora_rank", 16)


def _halves(number: int) -> Iterator[int]:
    while number > 1:
        number //= 2
        yield number


def _sft_changes(config: RunConfig) -> Iterator[Change]:
    sft = config.sft
    if sft.device == "cuda" and not sft.checkpointing:
        yield Change("sft.checkpointing", True)
    if sft.batch > 1:
        yield Change("sft.batch", 1)
    for length in (1024, 512):
        if length < sft.max_length:
            yield Change("sft.max_length", length)
    if sft.tuner == "full":
        yield Change("sft.tuner", "lora")
    if sft.device == "cpu":
        return
    if sft.deepspeed != "zero3" and sft.gpus * sft.nodes > 1:
        yield Change("sft.deepspeed", "zero3")
    yield from (Change("sft.gpus", gpus) for gpus in range(sft.gpus + 1, MOST_CARDS + 1))


def _ppo_changes(config: RunConfig) -> Iterator[Change]:
    ppo, hardware = config.ppo, config.ppo.hardware
    on_cpu = hardware.device == "cpu"  # its processes share one memory, where nothing is sent away
    if not on_cpu and ppo.lora.rank and hardware.dtype != "bfloat16":
        yield Change("ppo.hardware.dtype", "bfloat16")
    if ppo.advantage == "gae":
        models, shapes = rewriter_models(config), known_shapes()
        for name in CRITICS:
            if models and models.critic and shapes[name].parameters < models.critic.parameters:
                yield Change("ppo.critic_model", name)
    if not on_cpu and not hardware.offload:
        yield Change("ppo.hardware.offload", True)
    for share in (0.4, 0.3, 0.5, 0.6, 0.7, 0.8):
        if not on_cpu and share != hardware.rollout_memory:
            yield Change("ppo.hardware.rollout_memory", share)
    yield Change("ppo.accumulation", 2 * ppo.accumulation)
    if not ppo.lora.rank:
        yield Change("ppo.lora.rank", 64)
    if on_cpu:
        return
    yield from (Change("ppo.accumulation", parts) for parts in _halves(ppo.accumulation))  # beside more cards
    yield from (Change("ppo.hardware.per_node", cards) for cards in range(hardware.per_node + 1, MOST_CARDS + 1))
    yield Change("ppo.hardware.nodes", 2 * hardware.nodes)
