"""Alarms of a running training, such as a rising loss, computed by pure functions over the metrics so far."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

LOSSES = ("loss", "eval_loss", "gradient_norm")
LOWER_RATE = "Lower the learning rate, or look for odd rows."
RISE = 0.02
"""Relative rise of the validation loss above its lowest value that raises an alarm; noise stays below it."""

RISEN_LOOKS = 2
"""Number of latest validations that must all be above the lowest loss by RISE before an alarm is raised."""


class Alarm(NamedTuple):
    """Warning about a running training."""

    name: str
    level: Literal["warn", "stop"]
    message: str
    """Observation, likely cause, and next step."""


def loss_alarms(rows: Sequence[Mapping[str, float]]) -> list[Alarm]:
    """Return the alarms of a supervised training. `rows` are its metrics so far, one row per logged step."""
    raised = (not_finite(rows, LOSSES), validation_rising(rows))
    return [alarm for alarm in raised if alarm is not None]


def not_finite(
    rows: Sequence[Mapping[str, float]], names: Collection[str] | None = None, advice: str = LOWER_RATE
) -> Alarm | None:
    """Return an alarm if a metric of the newest row is NaN or infinite, else None. `names` limits the check to these
    metrics."""
    row = rows[-1] if rows else {}
    broken = [name for name in sorted(row) if (names is None or name in names) and not math.isfinite(row[name])]
    if not broken:
        return None
    figures = ", ".join(f"{name.replace('_', ' ')} is {row[name]}" for name in broken)
    message = f"{figures} at step {row.get('step', len(rows)):.0f}: the training has diverged. {advice}"
    return Alarm("not-a-number", "stop", message)


def validation_rising(rows: Sequence[Mapping[str, float]]) -> Alarm | None:
    """Return an alarm if the last validation losses are all clearly above the lowest, a sign of overfitting; else
    None."""
    looks = [(row["eval_loss"], row["step"]) for row in rows if math.isfinite(row.get("eval_loss", math.nan))]
    if len(looks) <= RISEN_LOOKS:
        return None
    (lowest, best), (now, step) = min(looks), looks[-1]
    if min(loss for loss, _ in looks[-RISEN_LOOKS:]) <= lowest * (1 + RISE):
        return None
    return Alarm(
        "validation-rising",
        "warn",
        f"validation loss was {lowest:.3f} at step {best:.0f} and is {now:.3f} at step {step:.0f}: it learns the "
        "training rows by heart. The best checkpoint is the one that is taken; fewer epochs would give the same.",
    )


def sft_without_gain(rows: int, unrewritten: float, trained: float) -> Alarm | None:
    """Return an alarm if the student's rewrites rank the right passage first no more often than the original
    questions do.

    `unrewritten` and `trained` are the shares of dev rows whose right passage was ranked first.
    """
    if not rows or trained > unrewritten:
        return None
    message = (
        f"of {rows:,} dev rows the student finds the right passage first in {trained:.1%}, and the questions as they "
        f"were asked in {unrewritten:.1%}: SFT has not learned to rewrite, and PPO starts from this model. Before "
        "PPO is paid for, stop the run (Ctrl-C; the same command goes on later) and run `qinglan headroom RUN`: if "
        "its best of 8 samples is no better either, add labelled rows, raise sft.epochs or take a larger base."
    )
    return Alarm("sft-without-gain", "warn", message)
