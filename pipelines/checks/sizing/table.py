"""Print a fit report on a terminal of 80 columns."""

from collections.abc import Iterator, Sequence
from typing import Any

from pipelines.checks.sizing.report import NO_HOURS, FitReport, Pace, Room
from qinglan.terminal import Verbatim, in_language, labelled, listed

MARKS = {"counted": "", "measured": " m", "published": " p", "guessed": " g"}
"""Letters after a part that give the basis of its bytes."""

SMALLEST = 0.05
"""Least GB of a part that is listed."""

NEXT_STEPS = {
    "card": "Take larger cards or more of them, a smaller batch, or a smaller base.model.",
    "rollout": "Raise ppo.hardware.rollout_memory, or take larger cards or more of them.",
    "host": "Take a machine with more memory (on a cluster cluster.pods), or a smaller base.model.",
    "scratch volume": "Make room on the disk, give a run --out on a larger one, or claim a larger volume.",
    "base weights": "Claim a larger volume for the base weights.",
}
"""Next step for each kind of memory or volume that is too small."""


def print_fit(report: FitReport) -> None:
    from qinglan.terminal.console import Console

    console = Console()
    machine = f"{report.cards} x {report.card}" if report.cards else "on a CPU"
    console.print(
        f"{report.profile}: base {report.base}{report.critic and f', critic {report.critic}'}; {machine}",
        highlight=False,
    )
    console.print(_rooms_table(report))
    if any(room.by_manifests for room in report.rooms):
        console.print("*: by this repository's manifests; your cards and volumes may be others.", style="dim")
    console.print("The parts of each. m: measured, p: published, g: guessed; the rest is counted.", style="dim")
    for room in report.rooms:
        where = listed([Verbatim(room.stage), room.room])
        console.print(labelled(where, Verbatim(parts_in_words(room))), highlight=False)
    console.print(_paces_table(report))
    for line in verdict_lines(report):
        console.print(line, style="" if report.fits else "yellow", highlight=False)
    for note in report.notes:
        console.print(note, highlight=False)


def uncounted_in_words(models: Sequence[str]) -> str:
    """Explain why there is no report: a model could not be counted, or a tiny model needs no count."""
    if not models:
        return "not counted. A tiny model is made from the run's texts; it fits everywhere."
    return (
        f"nothing was checked: the shape of {' and of '.join(models)} is known neither from weights here "
        "(QINGLAN_BASE_WEIGHTS) nor from qinglan/sizing/shapes.yaml, or is of an architecture that is not counted. "
        "Put the weights there, or add the model's config.json to the table."
    )


def summary_lines(report: FitReport) -> Iterator[str]:
    """Summarise the report in a few lines, for a plan."""
    yield f"On {report.cards} x {report.card}:" if report.cards else "On a CPU:"
    if not report.fits:
        yield from verdict_lines(report)
    elif report.cards:
        fullest = max(report.rooms, key=lambda room: room.needed / room.available if room.available else 0)
        full = f"{fullest.needed:,.1f} of {fullest.available:,.1f} GB"
        yield f"Yes. The fullest is the {fullest.room} of {fullest.stage}: {full}."
    else:
        for room in report.rooms:
            yield f"{room.stage} needs {room.needed:,.1f} GB of {'memory' if room.room == 'host' else 'disk'}."
    yield from (pace_in_words(pace) for pace in report.paces)
    if not report.cards:
        yield NO_HOURS


def pace_in_words(pace: Pace) -> str:
    if not pace.steps:
        return f"{pace.stage}: no step over so few rows."
    hours = "" if pace.hours is None else f", about {pace.hours:,.1f} h of the machine (an estimate)"
    return f"{pace.stage}: {pace.steps:,} steps, {pace.validations:,} validations{hours}."


def verdict_lines(report: FitReport) -> Iterator[str]:
    """Say whether the profile fits and, for each memory or volume that is too small, the next step."""
    if report.fits:
        all_rooms_known = all(room.available for room in report.rooms)
        what = "It fits" if all(pace.steps for pace in report.paces) else "Its memory and disk fit"
        yield f"{what}." if all_rooms_known else f"{what} where there is as much as it needs."
        return
    small = [room for room in report.rooms if not room.fits]
    yield from map(shortfall, small)
    yield from (f"- {step}" for step in dict.fromkeys(NEXT_STEPS[room.room] for room in small))


def shortfall(room: Room) -> str:
    return (
        f"Does not fit: {room.stage} needs {room.needed:,.1f} GB of {room.room} at '{room.phase}', and there are "
        f"{room.available or 0:,.1f}."
    )


def parts_in_words(room: Room) -> str:
    parts = sorted(room.parts, key=lambda part: -part.gigabytes)
    return " + ".join(
        f"{in_language(part.name)} {part.gigabytes:,.1f}{MARKS[part.basis]}"
        for part in parts
        if part.gigabytes >= SMALLEST
    )


def _rooms_table(report: FitReport) -> Any:
    from rich.table import Table

    table = Table(title="The most that each stage needs, in GB (10^9)", title_justify="left")
    for column in ("stage", "room", "at"):
        table.add_column(column)
    for column in ("needed", "there are"):
        table.add_column(column, justify="right")
    table.add_column("fits")
    for room in report.rooms:
        available = "?" if room.available is None else f"{room.available:,.1f}{' *' if room.by_manifests else '  '}"
        fits = "?" if room.available is None else "yes" if room.fits else "NO"
        table.add_row(
            room.stage, in_language(room.room), in_language(room.phase), f"{room.needed:,.1f}", available,
            in_language(fits), style="" if room.fits else "yellow",
        )  # fmt: skip
    return table


def _paces_table(report: FitReport) -> Any:
    from rich.table import Table

    table = Table(
        title=f"Steps over {report.rows:,} training rows; hours and price are estimates", title_justify="left"
    )
    table.add_column("stage")
    for column in ("steps a pass", "steps", "validations", "hours", f"price, {report.currency}".rstrip(", ")):
        table.add_column(column, justify="right")
    for pace in report.paces:
        hours, cost = ("?" if value is None else f"{value:,.1f}" for value in (pace.hours, pace.cost))
        table.add_row(pace.stage, f"{pace.steps_each:,}", f"{pace.steps:,}", f"{pace.validations:,}", hours, cost)
    return table
