"""The steps that a rehearsal has done, kept in its folder, so that the same command goes on after them.

A command whose files all went to their ends forgets them: the next one begins anew.
"""

import shutil
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

STEPS_FILE = "steps.jsonl"


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
    """The first line of its error; empty where it went to its end."""

    def __str__(self) -> str:
        seconds = sum(step.seconds for step in self.steps)
        last = self.steps[-1] if self.steps else None
        if self.failure:
            return f"{self.profile}: failed after {last.stage if last else 'nothing'}: {self.failure}"
        note = f"; {last.note}" if last and last.note else ""
        return f"{self.profile}: {last.stage if last else 'nothing'} reached, {seconds:.0f} s{note}"


def begin_folder(folder: Path) -> tuple[StepTime, ...]:
    """The steps that a rehearsal in this folder has done; without any, what is left there of another is removed."""
    file = folder / STEPS_FILE
    if not file.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        return ()
    return tuple(StepTime(**orjson.loads(line)) for line in file.read_bytes().splitlines())


def note_step(folder: Path, step: StepTime) -> None:
    with (folder / STEPS_FILE).open("ab") as file:
        file.write(orjson.dumps(step._asdict()) + b"\n")


def forget_steps(folders: Iterable[Path]) -> None:
    for folder in folders:
        (folder / STEPS_FILE).unlink(missing_ok=True)
