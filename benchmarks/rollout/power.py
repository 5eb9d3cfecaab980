"""python -m benchmarks.rollout.power: how many requests the sequential test needs, and how often it is wrong."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from serving.rollout.sequential import ALPHA, BETA, Block, Count, Score, fold, harm_needed, safe_needed

CHECKS = 6
PER_LOOK = 600
"""Requests of both models in a look of 30 s: 20 a second."""

BLOCKS_PER_TRIAL = 80


class Scenario(NamedTuple):
    """One check's true failure rates. `swing` multiplies both rates, up and down by that factor over the blocks."""

    stable: float
    canary: float
    share: float
    margin: float
    swing: float = 1.0
    pairs: bool = False


class TrialOutcome(NamedTuple):
    """The canary's requests until each bet was won; None where it never was."""

    harm: float | None
    safe: float | None


def run_trial(scenario: Scenario, random: np.random.Generator, per_block: int, checks: int) -> TrialOutcome:
    """One step of a rollout, evaluated after every block."""
    score = Score(check="quality" if scenario.pairs else "errors", margin=scenario.margin)
    harm = safe = None
    for number in range(BLOCKS_PER_TRIAL):
        block = sample_block(scenario, number, random, per_block)
        if not block.canary.total or not (block.stable.total or scenario.pairs):
            continue  # nothing to compare: canary_analysis.py leaves such a window out, too
        score = fold(score, block, float(number), harm_needed(checks))
        if harm is None and score.harm_value >= harm_needed(checks):
            harm = score.canary.total
        if safe is None and score.safe_value >= safe_needed():
            safe = score.canary.total
    return TrialOutcome(harm, safe)


def sample_block(scenario: Scenario, number: int, random: np.random.Generator, per_block: int) -> Block:
    """Draw one block: Poisson requests, binomial failures."""
    factor = scenario.swing ** np.sin(number / 5)
    canary = random.poisson(per_block * scenario.share)
    if scenario.pairs:
        return Block(Count(canary, random.binomial(canary, scenario.canary)), Count(0, 0), scenario.stable)
    stable = random.poisson(per_block * (1 - scenario.share))
    canary_failed = random.binomial(canary, scenario.canary * factor)
    stable_failed = random.binomial(stable, scenario.stable * factor)
    return Block(Count(canary, canary_failed), Count(stable, stable_failed))


def run_trials(scenario: Scenario, runs: int, seed: int, per_block: int, checks: int) -> list[TrialOutcome]:
    return [run_trial(scenario, np.random.default_rng([seed, run]), per_block, checks) for run in range(runs)]


def outcome_share(outcomes: Sequence[TrialOutcome], predicate: Callable[[TrialOutcome], bool]) -> float:
    return sum(map(predicate, outcomes)) / len(outcomes)


def median(values: Sequence[float | None]) -> float:
    """The median, where None is infinite: the bet was not won in this trial."""
    return float(np.median([np.inf if value is None else value for value in values]))


def wrong(world: Scenario, runs: int, seed: int, question: Callable[[TrialOutcome], bool]) -> float:
    """The share of runs in which the test, looked at every time, said what is not so."""
    return outcome_share(run_trials(world, runs, seed, PER_LOOK, CHECKS), question)


def falsely_taken_back(runs: int, seed: int = 1) -> dict[str, float]:
    """Outcomes of canaries that are just as good, by how both rates move; each check may spend ALPHA / CHECKS."""
    even = Scenario(0.01, 0.01, 0.2, 0.02)
    worlds = {"steady": even, "swinging": even._replace(swing=5.0), "half": even._replace(share=0.5, margin=0.01)}
    return {
        name: wrong(world, runs, seed, lambda outcome: outcome.harm is not None) for name, world in worlds.items()
    }


def falsely_passed(runs: int, seed: int = 2) -> dict[str, float]:
    """Outcomes of canaries that are worse by exactly the margin; each step may spend BETA."""
    worse = Scenario(0.01, 0.02, 0.5, 0.01)
    pairs = Scenario(0.5, 0.6, 0.05, 0.10, pairs=True)
    worlds = {"errors": worse, "early": Scenario(0.01, 0.06, 0.05, 0.05), "quality": pairs}
    return {
        name: wrong(world, runs, seed, lambda outcome: outcome.safe is not None) for name, world in worlds.items()
    }


def needed(world: Scenario, runs: int = 100) -> tuple[float, float]:
    """The median of the canary's requests until harm is shown, and until safety is; infinite where it is not."""
    tried = run_trials(world, runs, 3, PER_LOOK, CHECKS)
    return median([trial.harm for trial in tried]), median([trial.safe for trial in tried])


def table(runs: int = 100) -> list[str]:
    """The canary's requests until a decision, by its share, at 20 requests a second and 1 % errors of the stable."""
    lines = ["share  tolerated  canary fails  shown worse after  passed after"]
    for share, margin in ((0.05, 0.05), (0.2, 0.02), (0.5, 0.01)):
        for more in sorted({0.0, margin, 2 * margin, 0.10}):
            harm, safe = needed(Scenario(0.01, 0.01 + more, share, margin), runs)
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
