"""Times of a rehearsal's steps, and the result of each file."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple


class StepTime(NamedTuple):
    profile: str
    stage: str
    image: str
    seconds: float
    note: str = ""
    """The step's result; for the served release, how many of its rewrites were the judged ones."""

    def __str__(self) -> str:
        note = f"; {self.note}" if self.note else ""
        return f"{self.profile}: {self.stage} in the environment of {self.image}: {self.seconds} s{note}"


def recorded_step(profile: str, stage: str, image: str, record: Mapping[str, Any]) -> StepTime:
    """The time of a stage that ran together with others, by its own record."""
    started, ended = (datetime.fromisoformat(record[name]) for name in ("started", "ended"))
    return StepTime(profile, stage, image, round((ended - started).total_seconds(), 1))


class Result(NamedTuple):
    """How the rehearsal of a file ended."""

    profile: str
    steps: tuple[StepTime, ...]
    failure: str = ""
    """The first line of its error; empty if the rehearsal reached its end."""

    def __str__(self) -> str:
        seconds = sum(step.seconds for step in self.steps)
        last = self.steps[-1] if self.steps else None
        if self.failure:
            return f"{self.profile}: failed after {last.stage if last else 'nothing'}: {self.failure}"
        note = f"; {last.note}" if last and last.note else ""
        return f"{self.profile}: {last.stage if last else 'nothing'} reached, {seconds:.0f} s{note}"
