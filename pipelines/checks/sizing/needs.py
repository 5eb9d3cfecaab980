"""Needs of a run's stages: bytes needed on cards, in machines and on volumes, and bytes available."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from components.evaluation.rewriter import fit as evaluation
from components.training.base.config import BaseConfig
from components.training.ppo import fit as ppo
from components.training.sft import fit as sft
from components.training.style import fit as style
from pipelines.checks.sizing.manifests import Runtime, claimed_bytes, vllm_runtime
from pipelines.lines.cluster_resources import ClusterConfig
from pipelines.lines.config import training_settings
from pipelines.lines.rewriter import RunConfig
from pipelines.lines.style import StyleRunConfig
from qinglan.models.base_weights import local_model_folder
from qinglan.sizing.cards import Card, card_of_labels
from qinglan.sizing.constants import GIB
from qinglan.sizing.ledger import Amount, Need, Phase, phase
from qinglan.sizing.shape import ModelShape, UncountedError, known_shapes, read_shape
from qinglan.sizing.vllm import least_phase

WHOLE_RUN, SERVE = "run", "serve"
"""Names used in place of a stage: for a volume that several stages fill, and for the servers of the trained model."""


class Machine(NamedTuple):
    """Bytes available on a machine that is checked instead of the profile's cluster; 0 if unknown."""

    card: Card
    host: float = 0.0
    disk: float = 0.0
    folder: Path = Path("runs")
    """The run's folder, on that disk."""


class Models(NamedTuple):
    """Shapes of the actor and of the critic; grpo has no critic."""

    base: ModelShape
    critic: ModelShape | None


def model_shape(model: str) -> ModelShape | None:
    """Return the shape of a model, given by folder or public name; None if unknown, or if no formula covers it."""
    folder = local_model_folder(model)
    try:
        return read_shape(folder) if folder else known_shapes().get(model)
    except UncountedError:
        return None


def base_shape(config: BaseConfig) -> ModelShape | None:
    """Return the base model's shape; None if it is unknown, and for a tiny model, which fits everywhere."""
    return model_shape(config.model) if config.source == "hub" else None


def needs_of(needs: Sequence[Need], stages: Collection[str] | None) -> list[Need]:
    """Select the needs of `stages`, or all if None. For a volume, only the phases of these stages count."""
    if stages is None:
        return [*needs]
    omitted = {need.stage for need in needs} - {*stages}
    limited = [
        need._replace(phases=tuple(part for part in need.phases if part.name not in omitted))
        for need in needs
        if need.stage in stages or need.stage == WHOLE_RUN
    ]
    return [need for need in limited if need.phases]


def rewriter_models(config: RunConfig) -> Models | None:
    """Return the shapes of base and critic; None if a shape is unknown, or for a tiny model."""
    base = base_shape(config.base)
    critic = model_shape(config.ppo.critic_model) if config.ppo.critic_model else base
    if base is None or critic is None:
        return None
    return Models(base, critic if config.ppo.advantage == "gae" else None)


def rewriter_needs(config: RunConfig, models: Models, card: Card, machine: Machine | None = None) -> list[Need]:
    """Compute the needs of every stage that holds a model, on a cluster or on this `machine`."""
    needs = [*training_needs(config, models, card, machine)]
    if config.sft.device == "cuda":
        share = evaluation.engine_settings(config.evaluate).memory_share * card.usable
        needs.append(Need("evaluate", "card", evaluation.card_phases(config.evaluate, models.base), share))
        needs += _serving_needs(config, models.base)
    return [*needs, *_volume_needs(config, models, machine)]


def training_needs(config: RunConfig, models: Models, card: Card, machine: Machine | None = None) -> list[Need]:
    """Compute the memory that SFT and PPO need, on cards and in machines."""
    base, critic = models
    needs: list[Need] = []
    if config.sft.device == "cuda":
        needs.append(Need("sft", "card", sft.card_phases(config.sft, base), card.usable))
    needs.append(Need("sft", "host", sft.host_phases(config.sft, base), _host(config.cluster, "sft", machine)))
    if config.ppo.hardware.device == "cuda":
        settings = ppo.rollout_settings(config.ppo)
        share = settings.memory_share * card.usable
        needs.append(Need("ppo", "card", ppo.card_phases(config.ppo, base, critic, card.usable), card.usable))
        needs.append(Need("ppo", "rollout", (least_phase(base, settings),), share))
    needs.append(
        Need("ppo", "host", ppo.host_phases(config.ppo, base, critic), _host(config.cluster, "ppo", machine))
    )
    return needs


def _volume_needs(config: RunConfig, models: Models, machine: Machine | None) -> Iterator[Need]:
    if machine or config.sft.device != "cuda":
        disk = machine.disk if machine else 0.0
        yield Need(WHOLE_RUN, "scratch volume", _scratch_phases(config, models, remote=False), disk)
    else:
        phases = _scratch_phases(config, models, remote=True)
        yield Need(WHOLE_RUN, "scratch volume", phases, claimed_bytes(config.cluster.scratch))
        if config.cluster.base_weights:
            base = Amount("base", models.base.parameters * 2)
            critic = models.critic.parameters * 2 if models.critic and config.ppo.critic_model else 0
            weights = phase("both models", base, Amount("critic", critic))
            yield Need(WHOLE_RUN, "base weights", (weights,), claimed_bytes(config.cluster.base_weights))


def style_needs(config: StyleRunConfig, shape: ModelShape, card: Card, machine: Machine | None = None) -> list[Need]:
    """Compute the needs of the style trainings, on a card, or in memory on a machine without a card."""
    phases = {
        "style": (config.style.device, style.style_phases(config.style, shape)),
        "distil": (config.distil.device, style.distil_phases(config.distil, shape, config.style.max_length)),
    }
    needs = [
        Need(stage, "card", parts, card.usable)
        if device == "cuda"
        else Need(stage, "host", parts, _host(config.cluster, stage, machine))
        for stage, (device, parts) in phases.items()
    ]
    volume = (phase("style", *style.disk(config.style, shape)),)
    available = machine.disk if machine else claimed_bytes(config.cluster.scratch)
    return [*needs, Need(WHOLE_RUN, "scratch volume", volume, available)]


def serving_runtime(config: RunConfig) -> Runtime | None:
    """Return the runtime to which the profile, or else its training file, deploys; None if it does not run vLLM."""
    deploy = training_settings({"training": config.training}).get("deploy", {})
    return vllm_runtime(config.deploy.runtime if config.deploy else deploy.get("runtime", ""))


def _serving_needs(config: RunConfig, base: ModelShape) -> Iterator[Need]:
    runtime = serving_runtime(config)
    card = card_of_labels(runtime.labels) if runtime else None
    if runtime and card:
        settings = runtime.settings
        yield Need(SERVE, "card", (least_phase(base, settings),), settings.memory_share * card.usable)


def _scratch_phases(config: RunConfig, models: Models, remote: bool) -> tuple[Phase, ...]:
    """Compute the phases of the scratch volume. If `remote`, they include copies of the inputs for a job's pods; a
    base on the volume of base weights needs no copy. The SFT model stays during PPO."""
    size = models.base.parameters * 2
    copied = remote and not config.cluster.base_weights
    base_copy, sft_copy = Amount("copy of the base", copied * size), Amount("copy of the SFT model", remote * size)
    of_ppo = ppo.disk(config.ppo, models.base, models.critic)
    compared = [Amount("SFT model without further rows", size)] if config.trains_sft_twice else []
    # Each fold has an SFT and an RL model, each in its training's folder and as an artifact, and compared models.
    each = 4 + len(compared)
    folds = [Amount("models of the folds", config.convert.folds * each * size)] if config.convert.folds else []
    return (
        phase("sft", base_copy, *folds, *compared, *sft.disk(config.sft, models.base)),
        phase("ppo", base_copy, *folds, *compared, Amount("SFT model", size), sft_copy, *of_ppo),
    )


def _host(cluster: ClusterConfig, stage: str, machine: Machine | None) -> float:
    """Return the bytes of memory for a stage: on a cluster its pod's limit, or 0 if the profile sets none."""
    if machine:
        return machine.host
    return cluster.pods[stage].memory * GIB if stage in cluster.pods else 0.0
