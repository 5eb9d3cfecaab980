"""python -m tests.rehearsal PROFILE ...      rehearse profiles for GPUs here, to a served release; `make rehearse`
python -m tests.rehearsal style-a100 ...   the style line, of a profile of pipelines/configs/style

Prints what differs from the real settings and commands, then the time of each step; the last line is JSON.
"""

import argparse
import json
import sys
from collections.abc import Iterator
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
from tests.rehearsal.rehearse import AFTER_PPO, ENVIRONMENT, STAGES, Rehearsal, StepTime, rehearse, same_end
from tests.rehearsal.style import STYLE_PROFILES, begin_style

FILES = [path.stem for name in ("a100*", "one-gpu*") for path in TRAINING.glob(f"{name}.yaml")]
PROFILES = sorted(FILES, key=lambda name: (len(name), name))
"""Shorter names first: a100x4 is what others are compared with."""


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


def begin(
    profile: str, folder: Path, options: argparse.Namespace, stages: tuple[str, ...], earlier: list[Rehearsal]
) -> Iterator[StepTime]:
    """Print the differences of a profile of either line; the steps run as they are taken.

    What an earlier rehearsal ran by the same commands, on a model laid out alike, is named and not run again.
    """
    if profile in STYLE_PROFILES:
        return begin_style(profile, folder)
    rehearsal = Rehearsal(profile, folder, options.conversations)
    print_differences(rehearsal, stages)
    alike = next((other.profile for other in earlier if same_end(other, rehearsal)), "")
    repeated = [stage for stage in stages if alike and stage in AFTER_PPO]
    if repeated:
        print(
            f"{profile}: {', '.join(repeated)}: same commands as {alike}'s, on a model laid out alike: not repeated"
        )
    earlier.append(rehearsal)
    return rehearse(rehearsal, [stage for stage in stages if stage not in repeated])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rehearsal", description="Rehearse profiles for GPUs.")
    known = [*PROFILES, *STYLE_PROFILES]
    parser.add_argument("profiles", nargs="*", default=known, help=f"of {', '.join(known)}; all without a name")
    parser.add_argument(
        "--until", default=STAGES[-1], choices=STAGES, help="the last step of the rewriter's; all without this"
    )
    parser.add_argument("--conversations", type=int, default=60, help="conversations of the sample tenant")
    parser.add_argument("--out", type=Path, help="a folder that stays; a temporary one without this")
    options = parser.parse_args(arguments)
    if unknown := set(options.profiles) - set(known):
        parser.error(f"no profile {', '.join(sorted(unknown))}. There are: {', '.join(known)}")
    stages = STAGES[: STAGES.index(options.until) + 1]
    times: list[StepTime] = []
    earlier: list[Rehearsal] = []
    with TemporaryDirectory() as temporary:
        for profile in options.profiles:
            folder = (options.out or Path(temporary)).resolve() / profile
            try:
                for step in begin(profile, folder, options, stages, earlier):
                    times.append(step)
                    print(f"{profile}: {step.stage} in the environment of {step.image}: {step.seconds} s", flush=True)
            except QinglanError as error:
                say_error(error, f"rehearse {profile}")
                sys.exit(error.exit_code)
    print(json.dumps([step._asdict() for step in times]))


if __name__ == "__main__":
    main()
