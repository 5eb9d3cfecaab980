"""python -m benchmarks.demo [FOLDER]: a whole demo from nothing, the seconds and CPU seconds of each of its steps.

The folder is emptied first and holds the caches too, so nothing is found done. What comes before the first step is
the samples and the servers' start; what comes after the last is the rollout and the audit.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks.ppo.cpu import CpuMeter
from benchmarks.report import report

TARGET_SECONDS = 360.0
LOOK_SECONDS = 0.25
TENANT = "fivedoctors"


class Reading(NamedTuple):
    """CPU seconds used up to a moment."""

    at: float
    cpu: float


class Part(NamedTuple):
    name: str
    seconds: float
    cpu_seconds: float


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    looks, code = watched(
        [str(Path(sys.executable).parent / "qinglan"), "demo", "--out", str(folder / "demo")], folder
    )
    record = orjson.loads((folder / "demo" / TENANT / "run.json").read_bytes())
    parts = split(record["steps"], looks)
    for part in (*parts, Part("whole", looks[-1].at - looks[0].at, looks[-1].cpu)):
        print(f"{part.name:10} {part.seconds:7.1f} s {part.cpu_seconds:7.1f} CPU s")
    whole = looks[-1].at - looks[0].at
    report(
        "demo", whole / TARGET_SECONDS, 1.0, code == 0 and whole <= TARGET_SECONDS, code=code,
        seconds=round(whole, 1), cpu_seconds=round(looks[-1].cpu, 1), verdict=record["verdict"]["word"],
        parts={part.name: [round(part.seconds, 1), round(part.cpu_seconds, 1)] for part in parts},
    )  # fmt: skip


def watched(command: Sequence[str], folder: Path) -> tuple[list[Reading], int]:
    """Run the demo, its output in a log; the CPU time of all processes that it starts, measured a few times a
    second."""
    places = {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_CONFIG_HOME": str(folder / "config")}
    with (folder / "demo.log").open("wb") as log:
        meter, began = CpuMeter(), time.time()
        looks = [Reading(began, 0.0)]
        demo = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **places})
        while demo.poll() is None:
            time.sleep(LOOK_SECONDS)
            meter.sample()
            looks.append(Reading(time.time(), meter.seconds))
    return looks, demo.returncode


def split(steps: Mapping[str, Any], looks: Sequence[Reading]) -> list[Part]:
    """The time line cut at each step's beginning: what a step needs before it starts counts to the one before."""
    done = {name: step for name, step in steps.items() if step and "started" in step}
    cuts = [("samples", looks[0].at), *((name, _seconds(step["started"])) for name, step in done.items())]
    ended = max(_seconds(step["ended"]) for step in done.values())
    cuts += [("rollout", ended), ("", looks[-1].at)]
    return [
        Part(name, until - begins, cpu_at(looks, until) - cpu_at(looks, begins))
        for (name, begins), (_, until) in pairwise(cuts)
    ]


def cpu_at(looks: Sequence[Reading], moment: float) -> float:
    return max((reading.cpu for reading in looks if reading.at <= moment), default=0.0)


def _seconds(written: str) -> float:
    return datetime.fromisoformat(written).timestamp()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/bench-demo").resolve())
