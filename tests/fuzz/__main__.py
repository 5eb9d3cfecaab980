"""python -m tests.fuzz --seconds 600 [sheet profile ...]: searches each parser for an input that breaks it."""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.mutation import mutated
from tests.fuzz.targets import Target, targets

EXAMPLES = 500
"""Examples of one search; the next one begins from another seed."""

LONGEST_SECONDS = 10.0
"""Time of one input; what takes longer has no bound."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="for each parser")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("parsers", nargs="*", choices=[*targets(), []], metavar="parser")
    arguments = parser.parse_args()
    names = arguments.parsers or list(targets())
    failed = [name for name in names if not search(name, targets()[name], arguments.seconds, arguments.seed)]
    print(f"{len(names) - len(failed)} of {len(names)} parsers answered or refused in words.", flush=True)
    sys.exit(bool(failed))


def search(name: str, target: Target, seconds: float, first: int) -> bool:
    """True if no input broke the parser; else the smallest one is printed."""
    tried, started, number = [0], time.monotonic(), first
    while time.monotonic() - started < seconds:
        try:
            seed(number)(checked(target, tried))()
        except Exception as error:
            notes = "".join(getattr(error, "__notes__", ()))
            print(f"{name}: seed {number}: {type(error).__name__}: {error}\n{notes}", flush=True)
            return False
        number += 1
    print(f"{name}: {tried[0]:,} inputs in {time.monotonic() - started:.0f} s, from seed {first}", flush=True)
    return True


def checked(target: Target, tried: list[int]) -> Callable[[], None]:
    @settings(max_examples=EXAMPLES, database=None, deadline=None, suppress_health_check=list(HealthCheck),
              phases=[Phase.generate, Phase.shrink], print_blob=False)  # fmt: skip
    @given(mutated(target.seeds))
    def parse(content: bytes) -> None:
        tried[0] += 1
        started: Any = time.perf_counter()
        try:
            target.parse(content)
        except target.refuses:
            return
        finally:
            assert time.perf_counter() - started < LONGEST_SECONDS, "no answer in time"

    return parse


if __name__ == "__main__":
    main()
