"""python -m tests.rehearsal PROFILE ...      rehearse profiles for GPUs here, to a served release; `make rehearse`

Prints what differs from the real settings and commands, then the time of each step and each file's result; the last
line is JSON. A file that fails does not end the others.
"""

import argparse
import json
import shutil
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from pipelines.execute.execution import StepFailed, run_lock
from pipelines.execute.interrupts import INTERRUPTED
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import TRAINING
from qinglan.errors import QinglanError
from qinglan.terminal import say_error
from tests.rehearsal.differences import (
    command_differences,
    other_differences,
    serving_differences,
    setting_differences,
)
from tests.rehearsal.progress import Result, StepTime
from tests.rehearsal.rehearse import ENVIRONMENT, PROCESSES, STAGES, Rehearsal, rehearse

FILES = [path.stem for name in ("a100*", "one-gpu*") for path in TRAINING.glob(f"{name}.yaml")]
PROFILES = sorted(FILES, key=lambda name: (len(name), name))
"""Shorter names first: a100x4 is what others are compared with."""


def print_differences(rehearsal: Rehearsal, stages: tuple[str, ...]) -> None:
    profile, here = rehearsal.profile_config(), rehearsal.here()
    print(f"{rehearsal.profile}: settings that differ from the GPUs'")
    for difference in setting_differences(profile, here, stages):
        print(f"  {difference}")
    for name, value in ENVIRONMENT.items():
        print(f"  environment {name}: - -> {value}")
    for line in other_differences(profile, rehearsal.conversations):
        print(f"  {line}")
    for stage in (name for name in ("sft", "ppo") if name in stages):
        print(f"{rehearsal.profile}: what follows in the command of {stage}")
        for difference in command_differences(profile, here, stage):
            print(f"  {difference}")
    if "serve" in stages:
        print(f"{rehearsal.profile}: what differs in the commands of the runtime's containers")
        for difference in serving_differences(profile):
            print(f"  {difference}")


def begin(profile: str, folder: Path, options: argparse.Namespace) -> Iterator[StepTime]:
    """Print what differs from the profile; the steps run as they are taken."""
    stages = STAGES[: STAGES.index(options.until) + 1]
    rehearsal = Rehearsal(profile, folder, options.conversations, options.processes)
    print_differences(rehearsal, stages)
    return rehearse(rehearsal, stages)


def rehearse_profile(profile: str, folder: Path, options: argparse.Namespace) -> Result:
    """Rehearse one file in an empty folder. An error is part of the answer; only the user's stop is raised."""
    shutil.rmtree(folder, ignore_errors=True)
    steps: list[StepTime] = []
    try:
        for step in begin(profile, folder, options):
            steps.append(step)
            print(step, flush=True)
    except Exception as error:
        if isinstance(error, StepFailed) and error.exit_code == INTERRUPTED:
            raise
        if isinstance(error, QinglanError):
            say_error(error, f"rehearse {profile}")
        else:
            traceback.print_exc()
        return Result(profile, tuple(steps), f"{error}".partition("\n")[0] or type(error).__name__)
    return Result(profile, tuple(steps))


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.rehearsal", description="Rehearse profiles for GPUs.")
    parser.add_argument(
        "profiles", nargs="*", default=PROFILES, help=f"of {', '.join(PROFILES)}; all if none is named"
    )
    parser.add_argument("--until", default=STAGES[-1], choices=STAGES, help="the last step; without it all")
    parser.add_argument("--conversations", type=int, default=60, help="conversations of the sample tenant")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="PPO's processes, at most")
    parser.add_argument("--out", type=Path, default=Path("runs/rehearsal"), help="a folder for each file's run")
    options = parser.parse_args(arguments)
    if unknown := set(options.profiles) - set(PROFILES):
        parser.error(f"no profile {', '.join(sorted(unknown))}. There are: {', '.join(PROFILES)}")
    return options


def main(arguments: list[str] | None = None) -> None:
    options = read_options(arguments)
    try:
        with run_lock(RunDir(options.out)):
            out = options.out.resolve()
            results = [rehearse_profile(profile, out / profile, options) for profile in options.profiles]
    except QinglanError as error:
        say_error(error, "rehearse")
        sys.exit(error.exit_code)
    print(*results, sep="\n")
    print(json.dumps([step._asdict() for result in results for step in result.steps], ensure_ascii=False))
    sys.exit(any(result.failure for result in results))


if __name__ == "__main__":
    main()
