"""Follow a training: its metrics by our names, its progress, and the alarms and outages that end it."""

from collections.abc import Callable, Mapping
from pathlib import Path

import orjson

from components.training.ppo.metrics import Step, dev_score, parse_step, step_summary
from qinglan.errors import QinglanError
from qinglan.evaluation.stage_gain import Measure, StageGain
from qinglan.files.files import write_atomically
from qinglan.live.alarms import Alarm
from qinglan.live.follow import LineFollower, complete_lines
from qinglan.live.view import LiveTraining
from qinglan.reward.monitors import check_alarms
from qinglan.reward.outage import read_outage
from qinglan.terminal import say

FEW_WINS = 0.02
"""Lowest share of samples in the first step that beat the teacher; below it there is little to learn."""


class TrainingMonitor:
    """Monitor that reads verl's log as it grows. It is called twice a second; its result True ends the training."""

    def __init__(
        self,
        verl_log: Path,
        metrics: Path,
        reward_folder: Path,
        dev: Mapping[str, int],
        live: LiveTraining,
        total: int,
        patience: int,
        better: Callable[[int], None],
    ) -> None:
        self._new_lines, self._metrics, self._reward_folder = LineFollower(verl_log), metrics, reward_folder
        self._dev, self._live, self._better = dev, live, better
        self._total, self._patience = total, patience
        self.steps = read_steps(metrics)
        live.recall(self.steps.values())
        self.outage: QinglanError | None = None

    def __call__(self) -> bool:
        for line in self._new_lines():
            self._take(parse_step(orjson.loads(line), self._dev))
        self.outage = self.outage or read_outage(self._reward_folder)
        self._live.refresh()
        return self.outage is not None or self.stopped is not None or self.stalled

    @property
    def stalled(self) -> bool:
        """True if `patience` is used up before the last step."""
        return has_stalled(self.steps, self._patience, self._total)

    @property
    def stopped(self) -> Alarm | None:
        return self._live.stopped

    def _take(self, step: Step) -> None:
        number = int(step["step"])
        best = best_step(self.steps)
        self.steps[number] = {**self.steps.get(number, {}), **step}
        write_steps(self._metrics, self.steps)
        if number == 1 and (message := headroom_message(self.steps[number])):
            say(f"[ppo] {message}")
        self._live.step(self.steps[number], self._total, step_summary(self.steps[number]))
        if dev_score(step) is not None and best_step(self.steps) == number != best:
            self._better(number)
        self._live.check(check_alarms([self.steps[at] for at in sorted(self.steps)]))


def best_step(steps: Mapping[int, Step]) -> int | None:
    """Return the trained step with the best score on dev, the first one if several are equal; None before a test."""
    tested = {at: value for at, step in sorted(steps.items()) if at and (value := dev_score(step)) is not None}
    return max(tested, key=lambda at: tested[at], default=None)


def has_stalled(steps: Mapping[int, Step], patience: int, total: int) -> bool:
    """True if `patience` tests on dev have followed the best test, and the training has steps left."""
    best = best_step(steps)
    if not patience or best is None or max(steps) >= total:
        return False
    later = [at for at, step in steps.items() if at > best and dev_score(step) is not None]
    return len(later) >= patience


def headroom_message(first: Step) -> str:
    """Return a message about the share of the SFT model's rollouts, in the first step, that beat the teacher."""
    if "win_rate" not in first or "loss_rate" not in first:
        return ""
    wins, losses = first["win_rate"], first["loss_rate"]
    message = (
        f"headroom: of the SFT model's samples {wins:.1%} retrieve better than the teacher's, {losses:.1%} worse."
    )
    if wins < FEW_WINS:
        return f"warn: {message} Rewards have next to nothing to strengthen: `qinglan headroom` tells where."
    return message


def dev_scores(steps: Mapping[int, Step]) -> tuple[int, float | None, float | None]:
    """Return the best step, the SFT model's dev score, and the best step's dev score (None without a test)."""
    best = best_step(steps) or 0
    return best, dev_score(steps.get(0, {})), dev_score(steps.get(best, {}))


def model_step(steps: Mapping[int, Step]) -> int:
    """Return the step whose weights become the model: the best step, or 0 if the SFT model is better on dev."""
    best, before, after = dev_scores(steps)
    return 0 if before is not None and after is not None and after < before else best


def stage_gain(steps: Mapping[int, Step], dev_rows: int) -> StageGain | None:
    """Return the gain of the best checkpoint over the SFT model on dev, on rows with gold if there are any; None if
    one of the two was not tested."""
    _, before, after = dev_scores(steps)
    if before is None or after is None:
        return None
    measure: Measure = "right passage first" if "gold_dev" in steps[0] else "mean reward"
    rows = int(steps[0].get("gold_dev_rows", dev_rows))
    return StageGain(rows=rows, measure=measure, before=before, after=after, taken=model_step(steps) > 0)


def no_gain_message(steps: Mapping[int, Step]) -> str:
    """Return a warning if the best checkpoint is not better on dev than the SFT model; else an empty text."""
    best, before, after = dev_scores(steps)
    if before is None or after is None or after > before:
        return ""
    if after < before:
        return (
            "every checkpoint stands below the SFT model on dev, so the SFT model is the result: "
            f"{before:.3f} before, {after:.3f} at best (step {best})."
        )
    return f"no checkpoint stands above the SFT model on dev: {before:.3f} before and at best (step {best})."


def read_steps(path: Path) -> dict[int, Step]:
    """Read the metrics that an earlier attempt wrote, by step; empty if it wrote none."""
    if not path.is_file():
        return {}
    return {int(step["step"]): step for line in path.read_bytes().splitlines() if (step := orjson.loads(line))}


def write_steps(path: Path, steps: Mapping[int, Step]) -> None:
    write_atomically(path, b"".join(orjson.dumps(steps[at]) + b"\n" for at in sorted(steps)))


def resume_steps(verl_log: Path, metrics: Path, dev: Mapping[str, int], resumed: int) -> dict[int, Step]:
    """Return the steps up to the checkpoint from which the training resumes; later steps are trained again.

    Steps in verl's log that were not read before the kill are included. So call this before verl starts a new log.
    """
    steps = read_steps(metrics)
    for line in complete_lines(verl_log):
        step = parse_step(orjson.loads(line), dev)
        number = int(step["step"])
        steps[number] = {**step, **steps.get(number, {})}
    settled = {at: step for at, step in steps.items() if at <= resumed}
    write_steps(metrics, settled)
    return settled
