"""Estimated hours and price of the original plan's trainings, by the shipped profiles of the same machines."""

from functools import cache
from typing import NamedTuple

from pipelines.checks.sizing.profiles import load_profile
from pipelines.checks.sizing.report import Pace, Workload, rewriter_paces
from pipelines.lines.rewriter import RunConfig
from qinglan.errors import DataError

LORA, ALL_WEIGHTS = "a100x4", "a100x8-full"


class PlannedHours(NamedTuple):
    """Price and hours of each, in words."""

    sft: str
    sft_all: str
    ppo: str


def planned_hours(rows: int) -> PlannedHours:
    """Hours for so many training rows."""
    lora, all_weights = _paces(LORA, rows), _paces(ALL_WEIGHTS, rows)
    return PlannedHours(
        _hours(LORA, lora.get("sft"), rows),
        _hours(ALL_WEIGHTS, all_weights.get("sft"), rows),
        _hours(LORA, lora.get("ppo"), rows),
    )


def _paces(profile: str, rows: int) -> dict[str, Pace]:
    config = _shipped(profile)
    try:
        paces = rewriter_paces(config, Workload(rows)) if isinstance(config, RunConfig) else ()
    except DataError:  # a model that cannot be read is reported elsewhere
        return {}
    return {pace.stage: pace for pace in paces}


_shipped = cache(load_profile)


def _hours(profile: str, pace: Pace | None, rows: int) -> str:
    if pace and not pace.steps:
        return f"{rows:,} rows are too few for a step of {profile}"
    if pace is None or pace.hours is None:
        return "not estimated"
    return f"{pace.cost:.2f} for {pace.hours:.1f} h (estimate)"
