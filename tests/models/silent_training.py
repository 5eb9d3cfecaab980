"""A training that is followed without files, gateway or output, for tests of those who follow."""

from qinglan.live.view import LiveTraining
from qinglan.terminal.progress import ShowStep


def _silent(step: int, total: int, note: str = "") -> None:
    """Show nothing."""


def silent_training(stage: str, show: ShowStep = _silent) -> LiveTraining:
    return LiveTraining(stage, stage, {}, None, show)
