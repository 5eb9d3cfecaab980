"""What a policy can find out, by trying its test: how many requests it needs, and how often it is wrong."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from serving.rollout.canary_analysis import tolerated_margin
from serving.rollout.sequential import Block, Count, Score, fold, harm_needed, safe_needed
from serving.rollout.spec import RolloutSpec

if TYPE_CHECKING:
    import numpy as np

BLOCKS_PER_STEP = 80


class Scenario(NamedTuple):
    """One check as it truly is. `swing` moves both rates together, up and down by that factor over the looks."""

    stable: float
    canary: float
    share: float
    margin: float
    swing: float = 1.0
    pairs: bool = False


class TrialOutcome(NamedTuple):
    """How many of the canary's requests until each bet was won; None where it never was."""

    harm: float | None
    safe: float | None


class PowerEstimate(NamedTuple):
    """Of checks with one margin, at one share."""

    checks: tuple[str, ...]
    share: float
    tolerated: float
    stable: float
    """The share of the stable model's requests that fail it, as supposed."""
    passed: float
    """The canary's requests until one that is as good has passed: the median."""
    found: float
    """And until one that is worse by twice the tolerated is taken back."""
    missed: float
    """How often one that is worse by the tolerated passes."""
    wronged: float
    """How often one that is as good is taken back."""


def run_trial(
    world: Scenario, random: "np.random.Generator", per_look: int, checks: int, looks: int = BLOCKS_PER_STEP
) -> TrialOutcome:
    """One rollout's step, looked at every time, and each bet stopped as soon as it is won."""
    score = Score(check="quality" if world.pairs else "errors", margin=world.margin)
    harm = safe = None
    for at in range(looks):
        seen = sample_block(world, at, random, per_look)
        if not seen.canary.total or not (seen.stable.total or world.pairs):
            continue  # no comparison, as in weighing.py
        score = fold(score, seen, float(at), harm_needed(checks))
        harm = score.canary.total if harm is None and score.harm_value >= harm_needed(checks) else harm
        safe = score.canary.total if safe is None and score.safe_value >= safe_needed() else safe
    return TrialOutcome(harm, safe)


def sample_block(world: Scenario, at: int, random: "np.random.Generator", per_look: int) -> Block:
    import numpy as np

    factor = world.swing ** np.sin(at / 5)
    canary = random.poisson(per_look * world.share)
    if world.pairs:
        return Block(Count(canary, random.binomial(canary, world.canary)), Count(0, 0), world.stable)
    stable = random.poisson(per_look * (1 - world.share))
    failed = random.binomial(canary, world.canary * factor), random.binomial(stable, world.stable * factor)
    return Block(Count(canary, failed[0]), Count(stable, failed[1]))


def run_trials(world: Scenario, runs: int, seed: int, per_look: int, checks: int) -> list[TrialOutcome]:
    import numpy as np

    return [run_trial(world, np.random.default_rng([seed, run]), per_look, checks) for run in range(runs)]


def outcome_share(tried: Sequence[TrialOutcome], question: Callable[[TrialOutcome], bool]) -> float:
    return sum(map(question, tried)) / len(tried)


def median(values: Sequence[float | None]) -> float:
    """Infinite where it is not reached in half of them."""
    import numpy as np

    return float(np.median([np.inf if value is None else value for value in values]))


def estimate_power(spec: RolloutSpec, supposed: float, per_look: int, runs: int) -> Iterator[PowerEstimate]:
    """The checks that traffic answers, at each measured share; `supposed` of the stable model's requests fail."""
    for at, percent in enumerate(spec.steps[:-1]):
        alike: dict[float, list[str]] = {}
        for check in spec.checks if percent else ():
            if check.name != "quality":
                alike.setdefault(tolerated_margin(check, spec.steps[at + 1]), []).append(check.name)
        for margin, names in alike.items():
            world = Scenario(supposed, supposed, percent / 100, margin)
            yield _estimate(tuple(names), world, per_look, runs, len(spec.checks))


def _estimate(names: tuple[str, ...], even: Scenario, per_look: int, runs: int, checks: int) -> PowerEstimate:
    def tried(more: float) -> list[TrialOutcome]:
        world = even._replace(canary=min(even.stable + more, 0.95))
        return run_trials(world, runs, 7, per_look, checks)

    good, worse, bad = (tried(margins * even.margin) for margins in (0, 1, 2))
    return PowerEstimate(
        names, even.share, even.margin, even.stable,
        passed=median([one.safe for one in good]), found=median([one.harm for one in bad]),
        missed=outcome_share(worse, lambda one: one.safe is not None and (one.harm is None or one.safe < one.harm)),
        wronged=outcome_share(good, lambda one: one.harm is not None),
    )  # fmt: skip


def describe_power(found: Sequence[PowerEstimate], runs: int) -> list[str]:
    """For people."""
    wronged, missed = max(one.wronged for one in found), max(one.missed for one in found)
    return [
        *(
            f"at {one.share:3.0%}, {', '.join(one.checks)}: {100 * one.tolerated:.3g} points more are tolerated; a "
            f"canary as good passes after {_count(one.passed)} of its requests, one worse by twice that is found "
            f"after {_count(one.found)}"
            for one in found
        ),
        f"tried {runs:,} times each, where {100 * found[0].stable:.0f} % of the stable model's requests fail: a "
        f"canary as good was taken back in {wronged:.1%}, one worse by what is tolerated passed in {missed:.1%}",
    ]


def _count(value: float) -> str:
    return f"{value:,.0f}" if value != float("inf") else "never"
