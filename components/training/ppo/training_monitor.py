"""Follow a training: its metrics by our names, its progress, and the alarms and outages that end it."""

from collections.abc import Callable, Mapping
from pathlib import Path

import orjson

from components.training.ppo.metrics import Step, dev_score, parse_step
from qinglan.errors import QinglanError
from qinglan.files import atomic_write
from qinglan.reward.monitors import Alarm, check_alarms
from qinglan.reward.outage import read_outage
from qinglan.terminal import say


class TrainingMonitor:
    """Reads verl's log as it grows; called twice a second, it returns True if training has to end."""

    def __init__(
        self,
        verl_log: Path,
        metrics: Path,
        reward_folder: Path,
        dev: Mapping[str, int],
        more: Callable[[], Step],
        tick: Callable[[Step], None],
        better: Callable[[int], None],
    ) -> None:
        """`more` gives figures from elsewhere, `tick` is called with each step, `better` with each new best."""
        self._verl_log, self._metrics, self._reward_folder, self._dev = verl_log, metrics, reward_folder, dev
        self._more, self._tick, self._better = more, tick, better
        self._read = 0
        self.steps = read_steps(metrics)
        self.alarms: dict[str, Alarm] = {}
        self.outage: QinglanError | None = None

    def __call__(self) -> bool:
        for line in self._new_lines():
            self._take(parse_step(orjson.loads(line), self._dev))
        self.outage = self.outage or read_outage(self._reward_folder)
        return self.outage is not None or self.stopped is not None

    @property
    def stopped(self) -> Alarm | None:
        """The alarm that ends the training."""
        return next((alarm for alarm in self.alarms.values() if alarm.level == "stop"), None)

    def _take(self, step: Step) -> None:
        number = int(step["step"])
        best = best_step(self.steps)
        trained = "avg_reward" in step
        self.steps[number] = {**self.steps.get(number, {}), **step, **(self._more() if trained else {})}
        write_steps(self._metrics, self.steps)
        self._tick(self.steps[number])
        if dev_score(step) is not None and best_step(self.steps) == number != best:
            self._better(number)
        for alarm in check_alarms([self.steps[at] for at in sorted(self.steps) if "avg_reward" in self.steps[at]]):
            if alarm.name not in self.alarms or self.alarms[alarm.name].level != alarm.level:
                say(f"[ppo] {alarm.level}: {alarm.message}")
            self.alarms[alarm.name] = alarm

    def _new_lines(self) -> list[bytes]:
        lines = complete_lines(self._verl_log, self._read)
        self._read += sum(map(len, lines))
        return lines


def complete_lines(path: Path, start: int = 0) -> list[bytes]:
    """Lines of a file from byte `start` on that end with a newline; none if there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            return [line for line in file.readlines() if line.endswith(b"\n")]
    except FileNotFoundError:
        return []


def best_step(steps: Mapping[int, Step]) -> int | None:
    """The trained step with the best score on dev, the earliest of equals; None before any was tested."""
    tested = {at: value for at, step in sorted(steps.items()) if at and (value := dev_score(step)) is not None}
    return max(tested, key=lambda at: tested[at], default=None)


def no_gain_message(steps: Mapping[int, Step]) -> str:
    """The warning if the best checkpoint is no better on dev than the SFT model; else empty."""
    best = best_step(steps)
    before, after = (dev_score(steps.get(at, {})) for at in (0, best or 0))
    if before is None or after is None or after > before:
        return ""
    return f"no checkpoint stands above the SFT model on dev: {before:.3f} before, {after:.3f} at best (step {best})."


def read_steps(path: Path) -> dict[int, Step]:
    """Read the metrics of the steps that an earlier attempt wrote; none if there is no file."""
    if not path.is_file():
        return {}
    return {int(step["step"]): step for line in path.read_bytes().splitlines() if (step := orjson.loads(line))}


def write_steps(path: Path, steps: Mapping[int, Step]) -> None:
    with atomic_write(path) as partial:
        partial.write_bytes(b"".join(orjson.dumps(steps[at]) + b"\n" for at in sorted(steps)))


def resume_steps(verl_log: Path, metrics: Path, dev: Mapping[str, int], resumed: int) -> dict[int, Step]:
    """Steps up to the checkpoint that training resumes from, to be read before verl starts a new log.

    Later steps are trained again. Steps that verl had logged, unread when training was killed, are included.
    """
    steps = read_steps(metrics)
    for line in complete_lines(verl_log):
        step = parse_step(orjson.loads(line), dev)
        number = int(step["step"])
        steps[number] = {**step, **steps.get(number, {})}
    settled = {at: step for at, step in steps.items() if at <= resumed}
    write_steps(metrics, settled)
    return settled
