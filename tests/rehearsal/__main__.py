"""python -m tests.rehearsal PROFILE ...      rehearse profiles for GPUs here, to a served release; `make rehearse`

Prints what differs from the GPUs' settings and commands, then the time of each step; the last line is JSON.
"""

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.config import TRAINING
from qinglan.errors import QinglanError
from qinglan.terminal import say_error
from tests.rehearsal.differences import (
    command_differences,
    other_differences,
    serving_differences,
    setting_differences,
)
from tests.rehearsal.rehearse import ENVIRONMENT, STAGES, Rehearsal, StepTime, rehearse

PROFILES = sorted(path.stem for name in ("a100*", "one-gpu*") for path in TRAINING.glob(f"{name}.yaml"))


def print_differences(rehearsal: Rehearsal, stages: tuple[str, ...]) -> None:
    there, here = rehearsal.there(), rehearsal.here()
    print(f"{rehearsal.profile}: settings that differ from the GPUs'")
    for difference in setting_differences(there, here, stages):
        print(f"  {difference}")
    for name, value in ENVIRONMENT.items():
        print(f"  environment {name}: - -> {value}")
    for line in other_differences(there, rehearsal.conversations):
        print(f"  {line}")
    for stage in (name for name in ("sft", "ppo") if name in stages):
        print(f"{rehearsal.profile}: what follows in the command of {stage}")
        for difference in command_differences(there, here, stage):
            print(f"  {difference}")
    if "serve" in stages:
        print(f"{rehearsal.profile}: what differs in the commands of the runtime's containers")
        for difference in serving_differences(there):
            print(f"  {difference}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rehearsal", description="Rehearse profiles for GPUs.")
    parser.add_argument("profiles", nargs="*", default=PROFILES, help="files of pipelines/configs/training")
    parser.add_argument("--until", default=STAGES[-1], choices=STAGES, help="the last step; all without this")
    parser.add_argument("--conversations", type=int, default=60, help="conversations of the sample tenant")
    parser.add_argument("--out", type=Path, help="a folder that stays; a temporary one without this")
    options = parser.parse_args(arguments)
    if unknown := set(options.profiles) - set(PROFILES):
        parser.error(f"no profile {', '.join(sorted(unknown))}. There are: {', '.join(PROFILES)}")
    stages = STAGES[: STAGES.index(options.until) + 1]
    times: list[StepTime] = []
    with TemporaryDirectory() as temporary:
        for profile in options.profiles:
            rehearsal = Rehearsal(
                profile, (options.out or Path(temporary)).resolve() / profile, options.conversations
            )
            print_differences(rehearsal, stages)
            try:
                for step in rehearse(rehearsal, stages):
                    times.append(step)
                    print(f"{profile}: {step.stage} in the environment of {step.image}: {step.seconds} s", flush=True)
            except QinglanError as error:
                say_error(error, f"rehearse {profile}")
                sys.exit(error.exit_code)
    print(json.dumps([step._asdict() for step in times]))


if __name__ == "__main__":
    main()
