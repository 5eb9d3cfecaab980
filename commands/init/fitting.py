"""Write a paid profile that `qinglan doctor` accepts: its training fits this machine, its budget covers the plan."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from commands.init.profiles import LONGEST_PAID, LONGEST_PROMPT, Answers, DataSettings, paid_profile
from pipelines.checks.plan import make_plan
from pipelines.checks.sizing.check import check_fit, cpu_machine, on_gpus
from pipelines.lines.config import load_config
from pipelines.lines.rewriter import RunConfig
from qinglan.errors import ConfigError

SMALLEST = "laptop"
"""Name of the training file that fits every machine, because it trains a tiny model."""

LENGTHS = (LONGEST_PAID, 3072, 2048, 1536, 0)
"""Token limits of a prompt to try, largest first; 0 keeps the limits of the training's file."""

MARGIN, STEP = 1.3, 10
"""Least budget as a multiple of the plan's cost, and the step in the profile's currency to which it is rounded up."""


class Fitted(NamedTuple):
    """The profile's text, the answers that it follows, and what was changed for this machine."""

    text: str
    answers: Answers
    notes: list[str]


def fitted_profile(tenant: str, answers: Answers, data: DataSettings, folder: Path, chosen: bool) -> Fitted:
    """Make the paid profile's text, and test it in the folder that holds the tenant's other files.

    `chosen` is True if a person chose the training. It is then not replaced, because it may be for another machine.
    """
    path = folder / f"{answers.teacher}.yaml"
    problem: ConfigError | None = None
    for attempt, longest in attempts(answers, chosen):
        config = _written(tenant, path, paid_profile(tenant, attempt, data, longest))
        misfit = memory_problem(config, folder)
        if misfit is None:
            notes = list(_changes(answers, attempt, config, cut=longest < LONGEST_PAID and data.longest > longest))
            break
        problem = problem or misfit
    else:
        attempt, longest, notes = answers, LONGEST_PAID, [f"This machine cannot run the paid profile. {problem}"]
        config = _written(tenant, path, paid_profile(tenant, attempt, data))
    budget = needed_budget(make_plan(config).cost, config.gateway.budget)
    return Fitted(paid_profile(tenant, attempt, data, longest, budget), attempt, notes)


def attempts(answers: Answers, chosen: bool) -> Iterator[tuple[Answers, int]]:
    """Yield the answers with each training and token limit to try, the requested training first."""
    trainings = [answers.training] if chosen else dict.fromkeys([answers.training, SMALLEST])
    for training in trainings:
        for longest in (LONGEST_PROMPT,) if training == SMALLEST and not chosen else LENGTHS:
            yield answers._replace(training=training), longest


def memory_problem(config: RunConfig, folder: Path) -> ConfigError | None:
    """Return the error of `qinglan doctor`'s memory check; None if the training fits or its size is unknown."""
    try:
        check_fit(config, None if on_gpus(config) else cpu_machine(folder), volumes=False)
    except ConfigError as error:
        return error
    return None


def needed_budget(cost: float, budget: float) -> int:
    """Return a round budget that covers MARGIN times the plan's cost; 0 if the profile's own budget covers it."""
    least = MARGIN * cost
    return 0 if least <= budget else math.ceil(least / STEP) * STEP


def _written(tenant: str, path: Path, text: str) -> RunConfig:
    path.write_text(text, encoding="utf-8")
    return load_config(tenant, str(path))


def _changes(answers: Answers, taken: Answers, config: RunConfig, cut: bool) -> Iterator[str]:
    if taken.training != answers.training:
        yield (
            f"{answers.training} does not fit this machine, so the paid profile trains a tiny model "
            f"({taken.training}). Call `qinglan init` with --training for a larger machine."
        )
    if cut:
        yield (
            f"The paid profile takes {config.sft.max_length:,} tokens of a row (sft.max_length), since more does not "
            "fit: the oldest turns of longer histories are left out."
        )
