"""The page of trainings: the same in a run's folder and at its gateway."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qinglan.curves import curve_svg
from qinglan.live.snapshot import TrainingSnapshot
from qinglan.messages import translated
from qinglan.page import render_page

REFRESH_SECONDS, IDLE_REFRESH_SECONDS = 3, 15


def trainings_page(trainings: Sequence[TrainingSnapshot]) -> str:
    """The page, those that run first; it loads itself anew, less often while none runs: the next may begin."""
    from markupsafe import Markup

    ordered = sorted(trainings, key=lambda training: (training.state != "running", -training.stepped))
    running = any(training.state == "running" for training in trainings)
    return render_page(
        Path(__file__).parent / "trainings.html.j2",
        headline(trainings),
        refresh=REFRESH_SECONDS if running else IDLE_REFRESH_SECONDS,
        trainings=[
            {"at": training, "curve": Markup(_curve(training)), **_words(training)}  # noqa: S704 - its texts are escaped
            for training in ordered
        ],
    )


def headline(trainings: Sequence[TrainingSnapshot]) -> str:
    """The page's title: tabs of several runs are told apart by it."""
    runs = sorted({training.run for training in trainings})
    more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
    return f"Trainings of {runs[0]}{more}" if runs else "Trainings"


def _curve(training: TrainingSnapshot) -> str:
    """The curve in the reader's language; the file beside it stays English, as a log does."""
    return curve_svg(
        translated(training.title), {translated(label): points for label, points in training.curves.items()}
    )


def _words(training: TrainingSnapshot) -> dict[str, Any]:
    left = f", about {duration(training.seconds_left)} left" if training.seconds_left is not None else ""
    return {
        "progress": f"step {training.step:,} of {training.total:,}{left if training.state == 'running' else ''}",
        "written": datetime.fromtimestamp(training.written, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "figures": {name: f"{value:.5g}" for name, value in training.figures.items()},
    }


def duration(seconds: float) -> str:
    """A time for people: 42 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
