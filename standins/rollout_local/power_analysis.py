"""Estimates the power of a rollout's policy by simulation: the requests that it needs, and how often it is wrong.

The demo prints it before its rollout begins; benchmarks/rollout/power.py measures the default policy with it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from serving.rollout.canary_analysis import tolerated_margin
from serving.rollout.sequential import Block, Count, Score, fold, harm_needed, safe_needed
from serving.rollout.spec import RolloutSpec

if TYPE_CHECKING:
    import numpy as np

BLOCKS_PER_TRIAL = 80
SEED = 7


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


class PowerEstimate(NamedTuple):
    """The power of the checks that share one margin, at one share of the traffic."""

    checks: tuple[str, ...]
    share: float
    tolerated: float
    stable: float
    """The supposed failure rate of the stable model."""
    passed_after: float
    """The canary's requests until an equal canary passes: the median."""
    caught_after: float
    """The canary's requests until one that is worse by twice the tolerated margin is taken back: the median."""
    false_passes: float
    """The share of canaries worse by the tolerated margin that pass."""
    false_rollbacks: float
    """The share of equal canaries that are taken back."""


def run_trial(scenario: Scenario, random: "np.random.Generator", per_block: int, checks: int) -> TrialOutcome:
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


def sample_block(scenario: Scenario, number: int, random: "np.random.Generator", per_block: int) -> Block:
    """Draw one block: Poisson requests, binomial failures."""
    import numpy as np

    factor = scenario.swing ** np.sin(number / 5)
    canary = random.poisson(per_block * scenario.share)
    if scenario.pairs:
        return Block(Count(canary, random.binomial(canary, scenario.canary)), Count(0, 0), scenario.stable)
    stable = random.poisson(per_block * (1 - scenario.share))
    canary_failed = random.binomial(canary, scenario.canary * factor)
    stable_failed = random.binomial(stable, scenario.stable * factor)
    return Block(Count(canary, canary_failed), Count(stable, stable_failed))


def run_trials(scenario: Scenario, runs: int, seed: int, per_block: int, checks: int) -> list[TrialOutcome]:
    import numpy as np

    return [run_trial(scenario, np.random.default_rng([seed, run]), per_block, checks) for run in range(runs)]


def outcome_share(outcomes: Sequence[TrialOutcome], predicate: Callable[[TrialOutcome], bool]) -> float:
    return sum(map(predicate, outcomes)) / len(outcomes)


def median(values: Sequence[float | None]) -> float:
    """The median, where None is infinite: the bet was not won in this trial."""
    import numpy as np

    return float(np.median([np.inf if value is None else value for value in values]))


def estimate_power(spec: RolloutSpec, supposed: float, per_block: int, runs: int) -> Iterator[PowerEstimate]:
    """The power of each check that traffic answers, at each measured share; `supposed`: the stable failure rate."""
    for step, percent in enumerate(spec.steps[:-1]):
        checks_by_margin: dict[float, list[str]] = {}
        for check in spec.checks if percent else ():
            if check.name != "quality":
                margin = tolerated_margin(check, spec.steps[step + 1])
                checks_by_margin.setdefault(margin, []).append(check.name)
        for margin, names in checks_by_margin.items():
            equal = Scenario(supposed, supposed, percent / 100, margin)
            yield _estimate(tuple(names), equal, per_block, runs, len(spec.checks))


def _estimate(names: tuple[str, ...], equal: Scenario, per_block: int, runs: int, checks: int) -> PowerEstimate:
    def outcomes(margins: int) -> list[TrialOutcome]:
        scenario = equal._replace(canary=min(equal.stable + margins * equal.margin, 0.95))
        return run_trials(scenario, runs, SEED, per_block, checks)

    good, worse, bad = outcomes(0), outcomes(1), outcomes(2)
    return PowerEstimate(
        names, equal.share, equal.margin, equal.stable,
        passed_after=median([outcome.safe for outcome in good]),
        caught_after=median([outcome.harm for outcome in bad]),
        false_passes=outcome_share(worse, _passes_before_harm),
        false_rollbacks=outcome_share(good, lambda outcome: outcome.harm is not None),
    )  # fmt: skip


def _passes_before_harm(outcome: TrialOutcome) -> bool:
    return outcome.safe is not None and (outcome.harm is None or outcome.safe < outcome.harm)


def describe_power(estimates: Sequence[PowerEstimate], runs: int) -> list[str]:
    """One line for each estimate, and one for how often the test was wrong."""
    false_rollbacks = max(estimate.false_rollbacks for estimate in estimates)
    false_passes = max(estimate.false_passes for estimate in estimates)
    lines = [
        f"at {estimate.share:3.0%}, {', '.join(estimate.checks)}: {100 * estimate.tolerated:.3g} points more are "
        f"tolerated; a canary as good passes after {_count(estimate.passed_after)} of its requests, one worse by "
        f"twice that is found after {_count(estimate.caught_after)}"
        for estimate in estimates
    ]
    summary = (
        f"tried {runs:,} times each, where {100 * estimates[0].stable:.0f} % of the stable model's requests fail: a "
        f"canary as good was taken back in {false_rollbacks:.1%}, one worse by what is tolerated passed in "
        f"{false_passes:.1%}"
    )
    return [*lines, summary]


def _count(value: float) -> str:
    return f"{value:,.0f}" if value != float("inf") else "never"
