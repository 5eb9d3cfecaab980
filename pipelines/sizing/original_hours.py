"""Estimated hours and price of the original plan's trainings, by the shipped profiles of the same machines."""

from typing import NamedTuple

from pipelines.sizing.check import planned_fit_report
from pipelines.sizing.profiles import load_profile
from pipelines.sizing.report import Workload

LORA, ALL_WEIGHTS = "a100x4", "a100x8-full"


class PlannedHours(NamedTuple):
    """Price and hours of each, in words."""

    sft: str
    sft_all: str
    ppo: str


def planned_hours(rows: int) -> PlannedHours:
    """Hours for so many training rows."""
    return PlannedHours(_hours(LORA, "sft", rows), _hours(ALL_WEIGHTS, "sft", rows), _hours(LORA, "ppo", rows))


def _hours(profile: str, stage: str, rows: int) -> str:
    report = planned_fit_report(load_profile(profile), profile, Workload(rows))
    paces = [pace for pace in report.paces if pace.stage == stage] if report else []
    if paces and not paces[0].steps:
        return f"{rows:,} rows are too few for a step of {profile}"
    if not paces or paces[0].hours is None:
        return "not estimated"
    return f"{paces[0].cost:.2f} for {paces[0].hours:.1f} h (estimate)"
