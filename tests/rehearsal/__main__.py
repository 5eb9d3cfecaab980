"""python -m tests.rehearsal PROFILE ...      rehearse profiles for GPUs here, to a served release; `make rehearse`
python -m tests.rehearsal style-a100 ...   the style line, of a profile of pipelines/configs/style

Prints what differs from the real settings and commands, then the time of each step and each file's result; the last
line is JSON. A file that fails does not end the others, and the same command again goes on after the last step done.
"""

import argparse
import json
import sys
import traceback
from collections.abc import Iterator, Sequence
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
from tests.rehearsal.progress import Result, StepTime, begin_folder, forget_steps, note_step
from tests.rehearsal.rehearse import AFTER_PPO, ENVIRONMENT, PROCESSES, STAGES, Rehearsal, rehearse, same_end
from tests.rehearsal.style import STYLE_PROFILES, begin_style

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


def begin(
    profile: str, folder: Path, options: argparse.Namespace, done: Sequence[str], earlier: Sequence[Rehearsal]
) -> Iterator[StepTime]:
    """Print the differences of a profile of either line; the steps that are not done run as they are taken.

    What an earlier rehearsal ran by the same commands, on a model laid out alike, is named and not run again.
    """
    if profile in STYLE_PROFILES:
        return begin_style(profile, folder, done)
    stages = STAGES[: STAGES.index(options.until) + 1]
    rehearsal = Rehearsal(profile, folder, options.conversations, options.processes)
    print_differences(rehearsal, stages)
    alike = next((other.profile for other in earlier if same_end(other, rehearsal)), "")
    repeated = [stage for stage in stages if alike and stage in AFTER_PPO]
    if repeated:
        print(
            f"{profile}: {', '.join(repeated)}: same commands as {alike}'s, on a model laid out alike: not repeated"
        )
    return rehearse(rehearsal, [stage for stage in stages if stage not in (*repeated, *done)])


def rehearse_profile(profile: str, folder: Path, options: argparse.Namespace, earlier: Sequence[Rehearsal]) -> Result:
    """Rehearse one file after what of it is done. An error is part of the answer; only the user's stop is raised."""
    steps = [*begin_folder(folder)]
    if steps:
        print(f"{profile}: goes on after {steps[-1].stage}; without the folder {folder} it begins anew")
    try:
        for step in begin(profile, folder, options, [step.stage for step in steps], earlier):
            note_step(folder, step)
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


def rehearse_profiles(options: argparse.Namespace) -> list[Result]:
    """Rehearse each of the files, also after the failure of another."""
    results: list[Result] = []
    earlier: list[Rehearsal] = []
    for profile in options.profiles:
        folder = options.out.resolve() / profile
        results.append(rehearse_profile(profile, folder, options, earlier))
        if profile not in STYLE_PROFILES and not results[-1].failure:
            earlier.append(Rehearsal(profile, folder, options.conversations, options.processes))
    return results


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.rehearsal", description="Rehearse profiles for GPUs.")
    known = [*PROFILES, *STYLE_PROFILES]
    parser.add_argument("profiles", nargs="*", default=known, help=f"of {', '.join(known)}; all without a name")
    parser.add_argument(
        "--until", default=STAGES[-1], choices=STAGES, help="the last step of the rewriter's; all without this"
    )
    parser.add_argument("--conversations", type=int, default=60, help="conversations of the sample tenant")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="PPO's processes, at most")
    parser.add_argument("--out", type=Path, default=Path("runs/rehearsal"), help="a folder for each file's run")
    options = parser.parse_args(arguments)
    if unknown := set(options.profiles) - set(known):
        parser.error(f"no profile {', '.join(sorted(unknown))}. There are: {', '.join(known)}")
    return options


def main(arguments: list[str] | None = None) -> None:
    options = read_options(arguments)
    try:
        with run_lock(RunDir(options.out)):
            results = rehearse_profiles(options)
    except QinglanError as error:
        say_error(error, "rehearse")
        sys.exit(error.exit_code)
    failed = any(result.failure for result in results)
    if not failed:
        forget_steps(options.out / result.profile for result in results)
    print(*results, sep="\n")
    print(json.dumps([step._asdict() for result in results for step in result.steps], ensure_ascii=False))
    sys.exit(failed)


if __name__ == "__main__":
    main()
