"""python -m benchmarks.rollout.power: how many requests the sequential test needs, and how often it is wrong."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from serving.rollout.sequential import ALPHA, BETA, Block, Count, Score, fold, harm_needed, safe_needed

CHECKS = 5
LOOKS = 80
PER_LOOK = 600
"""Requests of both models in a look of 30 s: 20 a second."""


class World(NamedTuple):
    """One check as it truly is. `swing` moves both rates together, up and down by that factor over the looks."""

    stable: float
    canary: float
    share: float
    margin: float
    swing: float = 1.0
    pairs: bool = False


class Outcome(NamedTuple):
    """How many of the canary's requests until each bet was won; None where it never was."""

    harm: float | None
    safe: float | None


def watch(world: World, random: np.random.Generator, looks: int = LOOKS, per_look: int = PER_LOOK) -> Outcome:
    """One rollout's step, looked at every time, and each bet stopped as soon as it is won."""
    score = Score(check="quality" if world.pairs else "errors", margin=world.margin)
    harm = safe = None
    for at in range(looks):
        score = fold(score, block(world, at, random, per_look), float(at), harm_needed(CHECKS))
        harm = score.canary.of if harm is None and score.harm_value >= harm_needed(CHECKS) else harm
        safe = score.canary.of if safe is None and score.safe_value >= safe_needed() else safe
    return Outcome(harm, safe)


def block(world: World, at: int, random: np.random.Generator, per_look: int) -> Block:
    factor = world.swing ** np.sin(at / 5)
    canary = random.poisson(per_look * world.share)
    if world.pairs:
        return Block(Count(canary, random.binomial(canary, world.canary)), Count(0, 0), world.stable)
    stable = random.poisson(per_look * (1 - world.share))
    failed = random.binomial(canary, world.canary * factor), random.binomial(stable, world.stable * factor)
    return Block(Count(canary, failed[0]), Count(stable, failed[1]))


def wrong(world: World, runs: int, seed: int, question: Callable[[Outcome], bool]) -> float:
    """The share of runs in which the test, looked at every time, said what is not so."""
    outcomes = (watch(world, np.random.default_rng([seed, run])) for run in range(runs))
    return sum(question(outcome) for outcome in outcomes) / runs


def falsely_taken_back(runs: int, seed: int = 1) -> dict[str, float]:
    """Of canaries that are just as good, by how both rates move; each check may spend ALPHA / CHECKS."""
    even = World(0.01, 0.01, 0.2, 0.02)
    worlds = {"steady": even, "swinging": even._replace(swing=5.0), "half": even._replace(share=0.5, margin=0.01)}
    return {
        name: wrong(world, runs, seed, lambda outcome: outcome.harm is not None) for name, world in worlds.items()
    }


def falsely_passed(runs: int, seed: int = 2) -> dict[str, float]:
    """Of canaries that are worse by exactly the margin; each step may spend BETA."""
    worse = World(0.01, 0.02, 0.5, 0.01)
    pairs = World(0.5, 0.6, 0.05, 0.10, pairs=True)
    worlds = {"errors": worse, "early": World(0.01, 0.06, 0.05, 0.05), "quality": pairs}
    return {
        name: wrong(world, runs, seed, lambda outcome: outcome.safe is not None) for name, world in worlds.items()
    }


def needed(world: World, runs: int = 100) -> tuple[float, float]:
    """The median of the canary's requests until harm is shown, and until safety is; infinite where it is not."""
    outcomes = [watch(world, np.random.default_rng([3, run])) for run in range(runs)]
    harm = [np.inf if outcome.harm is None else outcome.harm for outcome in outcomes]
    safe = [np.inf if outcome.safe is None else outcome.safe for outcome in outcomes]
    return float(np.median(harm)), float(np.median(safe))


def table(runs: int = 100) -> list[str]:
    """The canary's requests until a decision, by its share, at 20 requests a second and 1 % errors of the stable."""
    lines = ["share  tolerated  canary fails  shown worse after  passed after"]
    for share, margin in ((0.05, 0.05), (0.2, 0.02), (0.5, 0.01)):
        for more in sorted({0.0, margin, 2 * margin, 0.10}):
            harm, safe = needed(World(0.01, 0.01 + more, share, margin), runs)
            lines.append(f"{share:5.0%}  {margin:9.0%}  {0.01 + more:12.0%}  {_count(harm):>17}  {_count(safe):>12}")
    return lines


def _count(value: float) -> str:
    return f"{value:,.0f}" if np.isfinite(value) else "-"


def main() -> None:
    print("\n".join(table()))
    runs = 2000
    print(f"of equal models, taken back (at most {ALPHA / CHECKS:.3f} a check): {falsely_taken_back(runs)}")
    print(f"of models worse by the margin, passed (at most {BETA}): {falsely_passed(runs)}")


if __name__ == "__main__":
    main()
