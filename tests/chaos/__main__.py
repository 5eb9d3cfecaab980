"""python -m tests.chaos --rounds 50: runs that are disturbed at random end as one that was left alone."""

import argparse
import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tests.chaos.disturb import disturb
from tests.chaos.thread import Thread, digests, finish, grave_findings, read_bill, start


class Round(NamedTuple):
    """A run that was disturbed, and then left alone."""

    disturbances: list[str]
    recovery: float
    """Seconds from the last disturbance to the whole result."""

    paid_again: int
    possibly_billed: int
    """Calls of which the journal says that they may have been paid without an answer."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        thread = Thread.make(Path(scratch))
        expected = undisturbed(thread)
        rounds = []
        for number in range(arguments.seed, arguments.seed + arguments.rounds):
            played = play(thread, expected, number)
            rounds.append(played)
            print(f"seed {number}: {played.recovery:.0f} s; {'; '.join(played.disturbances)}", flush=True)
    worst = max(played.recovery for played in rounds)
    again = sum(played.paid_again for played in rounds)
    print(f"{len(rounds)} runs: nothing lost, {again} answers lost on their way and paid again; worst {worst:.0f} s")


def undisturbed(thread: Thread, environment: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The digests of a run that was left alone, with these variables too."""
    out = thread.folder / "alone"
    with thread.teacher(thread.folder / "alone.teacher.log") as teacher:
        finish(thread.command(out, teacher), thread.folder / "alone.log", {**environment, **thread.environment})
    return digests(out)


def play(thread: Thread, expected: dict[str, str], seed: int) -> Round:
    """One round; an AssertionError where something was lost, or paid again without the journal's saying so."""
    chance, out = random.Random(seed), thread.folder / f"run-{seed}"
    errors = thread.folder / f"run-{seed}.log"
    with thread.teacher(thread.folder / f"run-{seed}.teacher.log") as teacher:
        command = thread.command(out, teacher)
        disturbances: list[str] = []
        for _ in range(chance.randint(1, 2)):
            with start(command, errors, thread.environment) as run:
                disturbances += disturb(run, command, errors, thread, chance, count=chance.randint(2, 6))
                run.kill()
        record, recovery = finish(command, errors, thread.environment)
        bill = read_bill(teacher)
    thread.clock.set(0)
    possibly = len(record["gateway"]["possibly_billed"])
    assert digests(out) == expected, f"seed {seed}: the result is another than that of a run left alone"
    assert bill.paid_again <= possibly, f"seed {seed}: {bill.paid_again} prompts were paid again, {possibly} are told"
    assert not (faults := grave_findings(thread, out)), f"seed {seed}: the audit finds {faults}"
    assert "Traceback" not in errors.read_text(encoding="utf-8"), f"seed {seed}: a traceback in {errors}"
    return Round(disturbances, recovery, bill.paid_again, possibly)


if __name__ == "__main__":
    main()
