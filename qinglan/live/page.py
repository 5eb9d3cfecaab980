"""Page of trainings, which is the same in a run's folder and at its gateway."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qinglan.live.snapshot import Points, TrainingSnapshot
from qinglan.messages import translated
from qinglan.pages.curves import curve_svg
from qinglan.pages.page import render_page

REFRESH_SECONDS, IDLE_REFRESH_SECONDS = 3, 15
FIGURES = {
    "loss": "training loss", "eval_loss": "validation loss", "token_accuracy": "right tokens in training",
    "eval_token_accuracy": "right tokens on dev", "learning_rate": "learning rate", "epoch": "passes over the rows",
    "macro_f1": "macro F1 on dev", "avg_reward": "mean reward", "win_rate": "wins against the teacher",
    "train_gold": "gold passage first in training", "gold_dev": "gold passage first on dev",
    "kl": "distance from the SFT model (KL)", "entropy": "entropy",
}  # fmt: skip
"""Labels of metrics by name. The page shows other metrics in a folded list, with their names as labels."""


def trainings_page(trainings: Sequence[TrainingSnapshot]) -> str:
    """Render the page, with running trainings first. It reloads itself, less often if no training runs."""
    from markupsafe import Markup

    ordered = sorted(trainings, key=lambda training: (training.state != "running", -training.stepped))
    running = any(training.state == "running" for training in trainings)
    return render_page(
        Path(__file__).parent / "trainings.html.j2",
        headline(trainings),
        refresh=REFRESH_SECONDS if running else IDLE_REFRESH_SECONDS,
        trainings=[
            {"at": training, "curves": list(map(Markup, _curves(training))), **_words(training)}
            for training in ordered
        ],
    )


def headline(trainings: Sequence[TrainingSnapshot]) -> str:
    """Return the title of the page. It names the run, so that a person can tell browser tabs apart."""
    runs = sorted({training.run for training in trainings})
    more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
    return f"Trainings of {runs[0]}{more}" if runs else "Trainings"


def _curves(training: TrainingSnapshot) -> Iterator[str]:
    """Yield one chart for each unit, in the reader's language. The file curve.svg stays English, like a log."""
    units: dict[str, dict[str, Points]] = {}
    for label, points in training.curves.items():
        units.setdefault(_unit(label), {})[translated(label)] = points
    for unit, curves in units.items():
        if any(curves.values()):
            title = translated(training.title) if len(units) == 1 else f"{training.stage}: {translated(unit)}"
            yield curve_svg(title, curves)


def _unit(label: str) -> str:
    """Return the unit of a curve: `reward`, `loss` or `share`. Each unit gets its own chart, because the scales
    differ."""
    return next((unit for unit in ("reward", "loss") if unit in label), "share")


def _words(training: TrainingSnapshot) -> dict[str, Any]:
    known = {words: f"{training.figures[name]:.5g}" for name, words in FIGURES.items() if name in training.figures}
    unnamed = {name: f"{value:.5g}" for name, value in training.figures.items() if name not in FIGURES}
    left = training.seconds_left if training.state == "running" else None
    return {
        "progress": f"step {training.step:,} of {training.total:,}"
        if training.total
        else "no step has been done yet",
        "left": "" if left is None else f"about {duration(left)} left",
        "written": datetime.fromtimestamp(training.written, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "known": known,
        "unnamed": unnamed,
    }


def duration(seconds: float) -> str:
    """Format a duration for people: 42 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
