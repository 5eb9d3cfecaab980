"""python -m tests.rehearsal PROFILE ...      rehearse steps of profiles for A100s here; `make rehearse`

Prints what differs from the A100s' settings and commands, then the time of each step; the last line is JSON.
"""

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.config import TRAINING
from pipelines.rewriter import REWRITER
from qinglan.errors import QinglanError
from qinglan.terminal import say_error
from tests.rehearsal.differences import command_differences, setting_differences
from tests.rehearsal.rehearse import Rehearsal, StepTime, rehearse

PROFILES = sorted(path.stem for path in TRAINING.glob("a100*.yaml"))
LAST = "sft"
"""The last stage that was rehearsed whole; `--until ppo` goes on from there."""


def print_differences(rehearsal: Rehearsal, stages: tuple[str, ...]) -> None:
    there, here = rehearsal.there(), rehearsal.here()
    print(f"{rehearsal.profile}: settings that differ from the A100s'")
    for difference in setting_differences(there, here, stages):
        print(f"  {difference}")
    for stage in (name for name in ("sft", "ppo") if name in stages):
        print(f"{rehearsal.profile}: what follows in the command of {stage}")
        for difference in command_differences(there, here, stage):
            print(f"  {difference}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rehearsal", description="Rehearse A100 profiles.")
    parser.add_argument("profiles", nargs="*", default=PROFILES, help="files of pipelines/configs/training")
    parser.add_argument("--until", default=LAST, help=f"the last stage; {LAST} without this")
    parser.add_argument("--conversations", type=int, default=60, help="conversations of the sample tenant")
    parser.add_argument("--out", type=Path, help="a folder that stays; a temporary one without this")
    options = parser.parse_args(arguments)
    stages = REWRITER.until(options.until)
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
