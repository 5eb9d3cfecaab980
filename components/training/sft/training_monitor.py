"""Follow ms-swift's log while it trains: metrics by step, progress, and alarms that end the training."""

import json
from pathlib import Path
from typing import Any

from qinglan.live.alarms import loss_alarms
from qinglan.live.follow import LineFollower
from qinglan.live.view import LiveTraining

NAMES = {"loss": "loss", "eval_loss": "eval_loss", "token_acc": "token_accuracy", "grad_norm": "gradient_norm"}
NAMES |= {"eval_token_acc": "eval_token_accuracy", "learning_rate": "learning_rate", "epoch": "epoch"}
"""Our name of each of ms-swift's figures."""


class TrainingMonitor:
    """Monitor that reads logging.jsonl as it grows. It is called twice a second."""

    def __init__(self, log: Path, live: LiveTraining) -> None:
        self._new_lines, self._live = LineFollower(log), live
        self.metrics: list[dict[str, float]] = []

    def __call__(self) -> bool:
        """Read new lines; True if the training must end."""
        for line in self._new_lines():
            row, total = read_line(line)
            if row:
                self.metrics.append(row)
                shown = {"loss": "loss", "eval_loss": "eval loss"}
                losses = [f"{words} {row[name]:.3f}" for name, words in shown.items() if name in row]
                self._live.step(row, total, ", ".join(losses))
                self._live.check(loss_alarms(self.metrics))
        self._live.refresh()
        return self._live.stopped is not None


def read_line(line: str | bytes) -> tuple[dict[str, float], int]:
    """Return a line's metrics by our names, and the total number of steps. Another line gives no metrics and 0."""
    values: dict[str, Any] = json.loads(line)
    where = str(values.get("global_step/max_steps", ""))
    if "/" not in where or not {"loss", "eval_loss"} & set(values):
        return {}, 0
    step, total = where.split("/")
    return {
        "step": int(step),
        **{figure: float(values[name]) for name, figure in NAMES.items() if name in values},
    }, int(total)
