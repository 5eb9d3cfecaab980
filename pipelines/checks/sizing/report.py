"""The report of `qinglan fit`: needs, steps, hours and price of a profile."""

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from components.training.ppo import fit as ppo
from components.training.sft import fit as sft
from components.training.style import fit as style
from pipelines.checks.sizing.needs import (
    SERVE,
    WHOLE_RUN,
    Machine,
    Models,
    base_shape,
    needs_of,
    rewriter_models,
    rewriter_needs,
    serving_runtime,
    style_needs,
)
from pipelines.lines.line import LineConfig
from pipelines.lines.rewriter import RunConfig
from pipelines.lines.sheet import Sheet, in_folds
from pipelines.lines.style import StyleRunConfig
from qinglan.config import Config
from qinglan.sizing.cards import Card, card_of_labels, card_of_size
from qinglan.sizing.constants import GB, GIGABIT, ROW_TOKENS, Basis
from qinglan.sizing.ledger import Need
from qinglan.sizing.speed import Steps, steps_of_all

PLAN_ROWS = 560
"""Largest number of training rows in the original plan, section 1.5."""

HOUR = 3600
NO_HOURS = "Hours on a CPU are not estimated."
DEFAULT_CARD = card_of_size(80)
"""The card that is assumed if a profile's node labels name no known card."""


class Part(Config):
    """GB of one part of a phase, such as weights."""

    name: str
    gigabytes: float
    basis: Basis


class Room(Config):
    """Highest GB that a stage needs on a card, in a machine's memory or on a volume, and the GB available there."""

    stage: str
    room: str
    phase: str
    needed: float
    """GB that the largest phase needs."""

    available: float | None
    by_manifests: bool
    """True if `available` is taken from this repository's manifests, which another cluster may have changed."""

    fits: bool
    parts: tuple[Part, ...]


class Pace(Config):
    """Steps of a stage's trainings, all folds included, with the estimated time and price."""

    stage: str
    steps_each: int
    """Optimizer steps of one pass over the rows; with several trainings, in the training of the released model."""

    steps: int
    validations: int
    hours: float | None
    """Estimated hours, from guessed utilisations; None if the card's speed is not known."""

    cost: float | None
    """Cost in the report's currency, by evaluate.gpu_hour_price."""


class FitReport(Config):
    profile: str
    base: str
    critic: str = ""
    card: str
    cards: int
    rows: int
    """Training rows that the steps are counted for."""

    currency: str = ""
    fits: bool
    rooms: tuple[Room, ...]
    paces: tuple[Pace, ...]
    notes: tuple[str, ...]


class Workload(NamedTuple):
    """Number of training rows."""

    rows: int
    folds: tuple[int, ...] = ()
    """Training rows of each fold's model; empty if no sheet was counted, or if it is not cross-fitted."""

    def trainings(self, folds: int) -> tuple[int, ...]:
        """Return the rows of every training: of the released model, then of each fold's model, known or estimated."""
        if not folds:
            return (self.rows,)
        estimate = round(self.rows * (1 - 1 / folds))
        return (self.rows, *(self.folds or [estimate] * folds))


PLANNED = Workload(PLAN_ROWS)


def sheet_workload(sheet: Sheet) -> Workload:
    rows, *folds = sheet.trainings
    return Workload(rows, folds=tuple(folds))


def fit_report(
    config: LineConfig,
    name: str,
    card: Card | None = None,
    machine: Machine | None = None,
    load: Workload = PLANNED,
    stages: Collection[str] | None = None,
) -> FitReport | None:
    """Build the report for a rewriter or style profile, on `stages` or on all; None if a model's shape is unknown."""
    card = card or card_of_labels(config.cluster.gpu_nodes) or DEFAULT_CARD
    values: dict[str, Any]
    if isinstance(config, RunConfig):
        if (models := rewriter_models(config)) is None:
            return None
        if stages is not None and "evaluate" not in stages:  # no row is tested, so no fold trains
            config = config.model_copy(update={"convert": in_folds(config.convert, 0)})
        needs = rewriter_needs(config, models, card, machine)
        paces = rewriter_paces(config, models, card, load)
        values = {
            "critic": (config.ppo.critic_model or "the SFT model") if models.critic else "",
            "cards": _cards(config),
            "currency": config.gateway.teacher.price.currency,
            "paces": tuple(pace for pace in paces if stages is None or pace.stage in stages),
            "notes": _notes(config, card, load),
        }
    elif isinstance(config, StyleRunConfig):
        if (shape := base_shape(config.base)) is None:
            return None
        needs = style_needs(config, shape, card, machine)
        steps, folds = _style_steps(config, load.rows)
        values = {
            "cards": int("cuda" in (config.style.device, config.distil.device)),
            "paces": (_pace("style", steps),),
            "notes": (*([_fold_note(folds)] if folds else []), "Hours of the style line are not estimated."),
        }
    else:
        return None
    needs = needs_of(needs, stages)
    values["notes"] = (*_unknown_card(config, card), *values["notes"])
    return FitReport(
        profile=name,
        base=config.base.model,
        card=card.name,
        rows=load.rows,
        fits=all(need.fits for need in needs),
        rooms=tuple(room_of(need, machine) for need in needs),
        **values,
    )


def _style_steps(config: StyleRunConfig, rows: int) -> tuple[Steps, int]:
    """Count the steps of all trainings, and the folds, which are 0 if a test is locked away."""
    prepare = config.prepare
    test = rows * prepare.test / (1 - prepare.test - prepare.dev)
    if test >= prepare.cross_fit_below:
        return style.steps(config.style, rows), 0
    released = style.steps(config.style, round(rows + test))
    fold = style.steps(config.style, round((rows + test) * (1 - 1 / prepare.folds)))
    total, tests = released.total + prepare.folds * fold.total, released.tests + prepare.folds * fold.tests
    return Steps(released.each, total, tests), prepare.folds


def _fold_note(folds: int) -> str:
    return (
        f"style trains {folds + 1} times on so few rows: the released model, and {folds} that judge the rows "
        "they did not learn from (prepare.cross_fit_below). All are in its steps. They leave no test for a small "
        "model: `qinglan style run` makes none, and in a submitted run `distil` refuses, behind `register`."
    )


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
        parts=parts,
    )


def _cards(config: RunConfig) -> int:
    """Return the highest number of cards that a training uses at once; 0 on a CPU."""
    of_sft = config.sft.gpus * config.sft.nodes if config.sft.device == "cuda" else 0
    return max(of_sft, config.ppo.devices if config.ppo.hardware.device == "cuda" else 0)


def rewriter_paces(config: RunConfig, models: Models, card: Card, load: Workload) -> Iterator[Pace]:
    trainings, tokens = load.trainings(config.convert.folds), ROW_TOKENS.value
    supervised = 2 * trainings if config.trains_sft_twice else trainings  # each with further rows, and without
    sft_steps = steps_of_all(sft.steps(config.sft, rows) for rows in supervised)
    ppo_steps = steps_of_all(ppo.steps(config.ppo, rows) for rows in trainings)
    sft_seconds = ppo_seconds = 0.0
    if _cards(config) and card.teraflops:
        network = config.cluster.network * GIGABIT
        sft_seconds = sum(sft.seconds(config.sft, models.base, rows, tokens, card, network) for rows in supervised)
        ppo_seconds = sum(ppo.seconds(config.ppo, *models, rows, tokens, card, network) for rows in trainings)
    price = _cards(config) * config.evaluate.gpu_hour_price
    yield _pace("sft", sft_steps, sft_seconds, price)
    yield _pace("ppo", ppo_steps, ppo_seconds if ppo_steps.total else 0.0, price)


def _pace(stage: str, steps: Steps, seconds: float = 0.0, hour_price: float = 0.0) -> Pace:
    """Build the pace of a stage; `seconds` is 0 if unknown."""
    hours = seconds / HOUR
    return Pace(
        stage=stage,
        steps_each=steps.each,
        steps=steps.total,
        validations=steps.tests,
        hours=round(hours, 2) if hours else None,
        cost=round(hours * hour_price, 2) if hours else None,
    )


def _notes(config: RunConfig, card: Card, load: Workload) -> Iterator[str]:
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
        yield f"The hours assume {config.cluster.network:g} Gbit/s between two nodes (cluster.network)."
    if config.trains_sft_twice:
        yield (
            "sft trains twice, with the teacher's further rows and without, and dev decides: both are in its steps, "
            "the further rows (augment) are not."
        )
    # verl's adapter and SFT's are exported side by side, so their ranks add up.
    rank = config.ppo.lora.rank + (config.sft.lora_rank if config.sft.tuner == "lora" else 0)
    runtime = serving_runtime(config)
    if runtime and runtime.settings.lora_slots and rank > runtime.settings.lora_rank:
        yield (
            f"The exported adapter has rank {rank}, both trainings' side by side, and {runtime.name} takes "
            f"{runtime.settings.lora_rank}: raise its --max-lora-rank, or lower ppo.lora.rank."
        )
