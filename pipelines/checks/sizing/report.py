"""The report of `qinglan fit`: needs, steps, hours and price of a profile, and what to change."""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from components.training.ppo import fit as ppo
from components.training.sft import fit as sft
from components.training.style import fit as style
from pipelines.checks.sizing.advice import MOST_CHANGES, nearest_changes, rewriter_changes, style_changes
from pipelines.checks.sizing.changes import Change, with_changes
from pipelines.checks.sizing.needs import (
    SERVE,
    WHOLE_RUN,
    Machine,
    Models,
    needs_of,
    rewriter_models,
    rewriter_needs,
    serving_runtime,
    style_needs,
    training_needs,
)
from pipelines.checks.sizing.shapes import base_shape
from pipelines.lines.line import LineConfig
from pipelines.lines.rewriter import RunConfig
from pipelines.lines.sheet import in_folds
from pipelines.lines.style import StyleRunConfig
from qinglan.config import Config
from qinglan.sizing.cards import Card, card_of_labels, card_of_size
from qinglan.sizing.constants import GB, GIB, GIGABIT, ROW_TOKENS, Basis
from qinglan.sizing.ledger import Need
from qinglan.sizing.shape import ModelShape
from qinglan.sizing.speed import Steps, steps_of_all
from qinglan.sizing.vllm import cache_tokens

PLAN_ROWS = 560
"""Largest number of training rows in the original plan, section 1.5."""

HOUR = 3600
SAFE_SHARE = 0.9
"""Share of a card up to which a setting that saves time alone is recommended."""
TRAININGS = ("sft", "ppo")
NO_HOURS = "Hours on a CPU are not estimated."
DEFAULT_CARD = card_of_size(80)
"""The card of a profile whose labels name none that is known."""


class Part(Config):
    """One thing's bytes in a phase."""

    name: str
    gigabytes: float
    basis: Basis


class Room(Config):
    """The most that a stage needs of one room, and what there is."""

    stage: str
    room: str
    phase: str
    needed: float
    """GB that the largest phase needs."""

    available: float | None
    by_manifests: bool
    """`available` is taken from this repository's manifests; another cluster may have other cards and volumes."""

    fits: bool
    guessed: float
    """GB of what is needed that rest on a guess."""

    parts: tuple[Part, ...]


class Pace(Config):
    """Steps of a stage's trainings, those of all folds among them, and the time and price estimated for them."""

    stage: str
    steps_each: int
    """Optimizer steps of one pass over the rows; of several trainings, the released model's."""

    steps: int
    validations: int
    hours: float | None
    """An estimate on guessed utilisations; None where the card's speed is not known."""

    cost: float | None
    """Cost in the report's currency, by evaluate.gpu_hour_price."""


class FitReport(Config):
    profile: str
    base: str
    critic: str
    card: str
    cards: int
    rows: int
    """Training rows that the steps are counted for."""

    currency: str
    fits: bool
    rooms: tuple[Room, ...]
    paces: tuple[Pace, ...]
    advice: tuple[str, ...]
    """Changes with which everything fits; empty if it fits already."""

    notes: tuple[str, ...]


class Workload(NamedTuple):
    """Training rows and the tokens of one."""

    rows: int
    row_tokens: float = ROW_TOKENS.value
    folds: tuple[int, ...] = ()
    """Training rows of each fold's sibling, where a sheet that is counted is cross-fitted."""

    def trainings(self, folds: int) -> tuple[int, ...]:
        """Rows of every training: the released model's, and those of its siblings, by an estimate without a sheet."""
        if not folds:
            return (self.rows,)
        estimate = round(self.rows * (1 - 1 / folds))
        return (self.rows, *(self.folds or [estimate] * folds))


PLANNED = Workload(PLAN_ROWS)


def rewriter_report(
    config: RunConfig,
    name: str,
    card: Card | None = None,
    machine: Machine | None = None,
    load: Workload = PLANNED,
    stages: Collection[str] | None = None,
) -> FitReport | None:
    """The report of these stages, or of all; None where a model's shape is not known."""
    models, card = rewriter_models(config), card or profile_card(config)
    if models is None:
        return None
    if stages is not None and "evaluate" not in stages:  # no row is tested, so that no fold trains
        config = config.model_copy(update={"convert": in_folds(config.convert, 0)})
    needs = needs_of(rewriter_needs(config, models, card, machine), stages)
    return FitReport(
        profile=name,
        base=config.base.model,
        critic=(config.ppo.critic_model or "the SFT model") if models.critic else "",
        card=card.name,
        cards=_cards(config),
        rows=load.rows,
        currency=config.gateway.teacher.price.currency,
        fits=all(need.fits for need in needs),
        rooms=tuple(room_of(need, machine) for need in needs),
        paces=tuple(pace for pace in _paces(config, models, card, load) if stages is None or pace.stage in stages),
        advice=tuple(_advice(config, needs, card, machine, stages)),
        notes=(*_unknown_card(config, card), *_notes(config, models, card, load)),
    )


def rewriter_paces(config: RunConfig, load: Workload) -> tuple[Pace, ...]:
    """Steps, hours and price of the trainings alone; none where a model's shape is not known."""
    models = rewriter_models(config)
    return tuple(_paces(config, models, profile_card(config), load)) if models else ()


def style_report(
    config: StyleRunConfig,
    name: str,
    card: Card | None = None,
    machine: Machine | None = None,
    load: Workload = PLANNED,
    stages: Collection[str] | None = None,
) -> FitReport | None:
    """The report of the style line, of these stages or of all."""
    shape, card = base_shape(config.base), card or profile_card(config)
    if shape is None:
        return None
    needs = needs_of(style_needs(config, shape, card, machine), stages)
    steps, folds = _style_steps(config, load.rows)
    return FitReport(
        profile=name,
        base=config.base.model,
        critic="",
        card=card.name,
        cards=int("cuda" in (config.style.device, config.distil.device)),
        rows=load.rows,
        currency="",
        fits=all(need.fits for need in needs),
        rooms=tuple(room_of(need, machine) for need in needs),
        paces=(_pace("style", steps, None, 1, 0.0),),
        advice=tuple(_style_advice(config, shape, needs, card, machine)),
        notes=(*_unknown_card(config, card), *_fold_notes(folds), "Hours of the style line are not estimated."),
    )


def _style_steps(config: StyleRunConfig, rows: int) -> tuple[Steps, int]:
    """Steps of all trainings, and the number of those for cross-fitting: 0 where a test is locked away."""
    prepare = config.prepare
    test = rows * prepare.test / (1 - prepare.test - prepare.dev)
    if test >= prepare.cross_fit_below:
        return style.steps(config.style, rows), 0
    released = style.steps(config.style, round(rows + test))
    fold = style.steps(config.style, round((rows + test) * (1 - 1 / prepare.folds)))
    total, tests = released.total + prepare.folds * fold.total, released.tests + prepare.folds * fold.tests
    return Steps(released.each, total, tests), prepare.folds


def _fold_notes(folds: int) -> Iterator[str]:
    if folds:
        yield (
            f"style trains {folds + 1} times on so few rows: the released model, and {folds} that judge the rows "
            "they did not learn from (prepare.cross_fit_below). All are in its steps. They leave no test for a small "
            "model: `qinglan style run` makes none, and in a submitted run `distil` refuses, behind `register`."
        )


def profile_card(config: RunConfig | StyleRunConfig) -> Card:
    """The card of the profile's nodes; 80 GB where their labels name none."""
    return card_of_labels(config.cluster.gpu_nodes) or DEFAULT_CARD


def _unknown_card(config: LineConfig, card: Card) -> Iterator[str]:
    if card is DEFAULT_CARD:
        labels = ", ".join(f"{name}: {value}" for name, value in config.cluster.gpu_nodes.items())
        yield f"The label {labels} names no known card: {card.memory:g} GB are taken. Give --gpu-memory."


def room_of(need: Need, machine: Machine | None) -> Room:
    parts = tuple(
        Part(name=part.name, gigabytes=round(part.bytes / GB, 2), basis=part.basis) for part in need.peak.amounts
    )
    return Room(
        stage=need.stage,
        room=need.room,
        phase=need.peak.name,
        needed=round(need.peak.bytes / GB, 1),
        available=round(need.available / GB, 1) or None,
        by_manifests=need.stage == SERVE or (need.stage == WHOLE_RUN and machine is None),
        fits=need.fits,
        guessed=round(sum(part.gigabytes for part in parts if part.basis == "guessed"), 1),
        parts=parts,
    )


def _cards(config: RunConfig) -> int:
    """The most cards that a training has at once; 0 on a CPU."""
    of_sft = config.sft.gpus * config.sft.nodes if config.sft.device == "cuda" else 0
    return max(of_sft, config.ppo.devices if config.ppo.hardware.device == "cuda" else 0)


def _paces(config: RunConfig, models: Models, card: Card, load: Workload) -> Iterator[Pace]:
    price = config.evaluate.gpu_hour_price
    cards = _cards(config)
    has_speed = cards and card.teraflops
    trainings, tokens = load.trainings(config.convert.folds), load.row_tokens
    network = config.cluster.network * GIGABIT
    supervised = 2 * trainings if config.augment.asks else trainings  # each with further rows, and without
    seconds = (
        sum(sft.seconds(config.sft, models.base, rows, tokens, card, network) for rows in supervised)
        if has_speed
        else None
    )
    yield _pace("sft", steps_of_all(sft.steps(config.sft, rows) for rows in supervised), seconds, cards, price)
    steps = steps_of_all(ppo.steps(config.ppo, rows) for rows in trainings)
    counted = has_speed and steps.total
    shapes = (models.base, models.critic)
    seconds = (
        sum(ppo.seconds(config.ppo, *shapes, rows, tokens, card, network) for rows in trainings) if counted else None
    )
    yield _pace("ppo", steps, seconds, cards, price)


def _pace(stage: str, steps: Steps, seconds: float | None, cards: int, price: float) -> Pace:
    pace = Pace(stage=stage, steps_each=steps.each, steps=steps.total, validations=steps.tests, hours=None, cost=None)
    if seconds is None:
        return pace
    hours = seconds / HOUR
    return pace.model_copy(update={"hours": round(hours, 2), "cost": round(hours * cards * price, 2)})


def _advice(
    config: RunConfig, needs: Sequence[Need], card: Card, machine: Machine | None, stages: Collection[str] | None
) -> Iterator[str]:
    changed = config
    for stage in TRAININGS:
        if all(need.fits for need in needs if need.stage == stage):
            continue

        def fits(other: RunConfig, stage: str = stage) -> bool:
            models = rewriter_models(other)
            return models is not None and _fits(training_needs(other, models, card, machine), stage)

        options = nearest_changes(changed, rewriter_changes(changed, stage), fits)
        yield _changes_in_words(stage, options, _on_cpu(config, stage))
        if options:
            changed = with_changes(changed, options[0], "advice")
    models = rewriter_models(changed)
    rest = needs_of(rewriter_needs(changed, models, card, machine), stages) if models else needs
    direct = _direct_advice([need for need in rest if need.stage not in TRAININGS], machine)
    yield from direct if changed is config else (f"With the first of these changes: {line}" for line in direct)
    yield from _direct_advice(_hosts_alone(needs), machine)


def _style_advice(
    config: StyleRunConfig, shape: ModelShape, needs: Sequence[Need], card: Card, machine: Machine | None
) -> Iterator[str]:
    for need in needs:
        if need.room == "card" and not need.fits:

            def fits(other: StyleRunConfig, stage: str = need.stage) -> bool:
                return _fits(style_needs(other, shape, card, machine), stage)

            yield _changes_in_words(need.stage, nearest_changes(config, style_changes(config, need.stage), fits))
    yield from _direct_advice([need for need in needs if need.room != "card"], machine)


def _fits(needs: Sequence[Need], stage: str) -> bool:
    return all(need.fits for need in needs if need.stage == stage)


def _on_cpu(config: RunConfig, stage: str) -> bool:
    return (config.sft.device if stage == "sft" else config.ppo.hardware.device) == "cpu"


def _changes_in_words(stage: str, options: Sequence[tuple[Change, ...]], on_cpu: bool = False) -> str:
    if options:
        return f"{stage} fits with {'; or with '.join(' and '.join(map(str, changes)) for changes in options)}."
    if on_cpu:
        return f"{stage}: changing up to {MOST_CHANGES} settings does not make it fit. Take a smaller base.model."
    cards = "larger cards or more of them" if stage in TRAININGS else "a larger card"
    return (
        f"{stage}: changing up to {MOST_CHANGES} settings does not make it fit. "
        f"Take {cards}, or a smaller base.model."
    )


def _hosts_alone(needs: Sequence[Need]) -> list[Need]:
    """Needs of machines' memory, with more of which a stage fits: its cards have room enough."""
    small_cards = {need.stage for need in needs if need.room != "host" and not need.fits}
    return [need for need in needs if need.room == "host" and need.stage not in small_cards]


def _direct_advice(needs: Sequence[Need], machine: Machine | None) -> Iterator[str]:
    """More room, in the table's units and a manifest's, where a stage's settings do not decide over it."""
    for need in needs:
        if need.fits:
            continue
        gib = math.ceil(need.peak.bytes / GIB)
        size = f"{need.peak.bytes / GB:,.1f} GB"
        if need.room == "host":
            setting = "" if machine else f": cluster.pods.{need.stage}.memory: {gib}, which counts in Gi"
            yield f"Or {size} of memory for {need.stage} in each machine{setting}."
        elif need.room == "card":
            times = math.ceil(10 * need.peak.bytes / need.available) / 10
            yield f"{need.stage} fits a card with {times:.1f} times the memory, or takes a smaller base.model."
        elif machine:
            yield (
                f"Make room for {size} where {machine.folder} is or will be, or give a run --out on a larger disk. "
                "What an earlier try of it holds there counts as free."
            )
        else:
            yield f"The {need.room} needs {size}, which are {gib:,}Gi of a claim."


def _room_without_checkpointing(config: RunConfig, models: Models, card: Card) -> bool:
    """True if a card holds all activations of SFT with some room to spare."""
    if config.sft.device != "cuda" or not config.sft.checkpointing:
        return False
    [step] = sft.card_phases(config.sft.model_copy(update={"checkpointing": False}), models.base)
    return step.bytes <= SAFE_SHARE * card.usable


def _notes(config: RunConfig, models: Models, card: Card, load: Workload) -> Iterator[str]:
    if not ppo.steps(config.ppo, load.rows).total:
        yield (
            f"ppo takes no step over {load.rows:,} training rows: a step takes {config.ppo.prompts:,} prompts "
            "(ppo.collection / ppo.rollouts). Take as many rows at least, or a smaller ppo.collection."
        )
    if not _cards(config):
        yield NO_HOURS
    elif not card.teraflops:
        yield f"Hours and price are not estimated: the speed of {card.name} is not known."
    if _cards(config) and max(config.sft.nodes, config.ppo.hardware.nodes) > 1:
        yield (
            f"The hours assume {config.cluster.network:g} Gbit/s between two nodes (cluster.network). verl shards "
            "the models over all nodes: each part of a batch waits until all weights have crossed the network."
        )
    if _room_without_checkpointing(config, models, card):
        yield ("sft.checkpointing: false fits too: nothing is computed twice, and sft takes about a third less time.")
    if config.augment.asks:
        yield (
            "sft trains twice, with the teacher's further rows and without, and dev decides: both are in its steps, "
            "the further rows (augment) are not."
        )
    rank = config.ppo.lora.rank + (config.sft.lora_rank if config.sft.tuner == "lora" else 0)
    runtime = serving_runtime(config)
    if runtime and runtime.settings.lora_slots and rank > runtime.settings.lora_rank:
        yield (
            f"The exported adapter has rank {rank}, both trainings' side by side, and {runtime.name} takes "
            f"{runtime.settings.lora_rank}: raise its --max-lora-rank, or lower ppo.lora.rank."
        )
    if _cards(config):
        settings = ppo.rollout_settings(config.ppo)
        cached = cache_tokens(models.base, settings, card.usable)
        copies = config.ppo.devices // settings.tensor_parallel
        together = min(config.ppo.collection, copies * cached // settings.max_model_len)
        yield (
            f"Each of the rollout's {copies:,} vLLM caches {cached:,} tokens: {together:,} of a step's "
            f"{config.ppo.collection:,} samples at once, at their longest."
        )
