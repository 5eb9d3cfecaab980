"""python -m benchmarks.reward_texts [TENANT]: what each kind of text earns under each reward.

Means over training rows of a sample; gold is how often the text finds the gold passage first. The last rows of
the second table say how often honest texts are taken for a fault.
"""

import sys
from statistics import fmean

from benchmarks.reward_world import KINDS, Case, World, opened
from qinglan.reward.config import RewardConfig

CONVERSATIONS, ROWS, SEED = 400, 200, 100
FAULTS = ("floor", "copied", "malformed", "repeats", "names", "numbers", "length_ratio")


def main() -> None:
    tenant = sys.argv[1] if len(sys.argv) > 1 else "fivedoctors"
    with opened(tenant, CONVERSATIONS, SEED) as world:
        cases = world.cases("train", ROWS)
        print(f"{tenant}, {len(cases)} rows: mean reward\n")
        print("| text | gold first | seed_v1 | anchored_v2 | anchored_v2, no gold column |\n|---|---|---|---|---|")
        for kind in KINDS:
            print(f"| {kind} | " + " | ".join(row(world, cases, kind)) + " |")
        print("\n| text | " + " | ".join(FAULTS) + " |\n|---|" + "---|" * len(FAULTS))
        for kind in ("good", "teacher", "question"):
            print(f"| {kind} | " + " | ".join(faults(world, cases, kind)) + " |")


def row(world: World, cases: list[Case], kind: str) -> list[str]:
    seed, anchored = RewardConfig(mode="seed_v1"), RewardConfig()
    plain = [world.score(case, kind, seed) for case in cases]
    gold = [world.score(case, kind, anchored) for case in cases]
    need = [world.score(without_gold(case), kind, anchored) for case in cases]
    scores = (fmean(terms["score"] for terms in side) for side in (plain, gold, need))
    return [f"{fmean(terms['gold'] for terms in gold):.2f}", *(f"{value:+.3f}" for value in scores)]


def faults(world: World, cases: list[Case], kind: str) -> list[str]:
    scored = [world.score(case, kind, RewardConfig()) for case in cases]
    return [f"{fmean(terms[name] for terms in scored):.3f}" for name in FAULTS]


def without_gold(case: Case) -> Case:
    return case._replace(prompt=case.prompt.model_copy(update={"gold": ()}))


if __name__ == "__main__":
    main()
