"""Follow ms-swift's log while it trains: metrics by step, progress, and faults that end a training."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = {"loss": "loss", "eval_loss": "eval_loss", "token_acc": "token_accuracy", "grad_norm": "gradient_norm"}
NAMES |= {"eval_token_acc": "eval_token_accuracy", "learning_rate": "learning_rate", "epoch": "epoch"}


class TrainingMonitor:
    """Reads logging.jsonl as it grows; called twice a second."""

    def __init__(self, log: Path, tick: Callable[[dict[str, float], int], None]) -> None:
        self._log, self._tick = log, tick
        self._read = 0
        self.metrics: list[dict[str, float]] = []
        self.trouble = ""

    def __call__(self) -> bool:
        """Read new lines; True if training has to end."""
        for line in self._new_lines():
            row, total = read_line(line)
            if row:
                self.metrics.append(row)
                self._tick(row, total)
                self.trouble = self.trouble or stop_reason(row)
        return bool(self.trouble)

    def _new_lines(self) -> list[str]:
        try:
            with self._log.open(encoding="utf-8") as file:
                file.seek(self._read)
                lines = file.readlines()
        except FileNotFoundError:
            return []
        whole = [line for line in lines if line.endswith("\n")]
        self._read += sum(len(line.encode()) for line in whole)
        return whole


def read_line(line: str) -> tuple[dict[str, float], int]:
    """A line's metrics by our names, and the number of steps in all; empty if the line has no metrics."""
    values: dict[str, Any] = json.loads(line)
    where = str(values.get("global_step/max_steps", ""))
    if "/" not in where or not {"loss", "eval_loss"} & set(values):
        return {}, 0
    step, total = where.split("/")
    return {
        "step": int(step),
        **{figure: float(values[name]) for name, figure in NAMES.items() if name in values},
    }, int(total)


def stop_reason(row: dict[str, float]) -> str:
    """The reason why training cannot go on after this step; empty if it can."""
    for name in ("loss", "eval_loss", "gradient_norm"):
        if name in row and not math.isfinite(row[name]):
            return f"{name.replace('_', ' ')} is {row[name]} at step {row['step']:.0f}"
    return ""
