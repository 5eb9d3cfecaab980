"""Describe a run's trainings as recipes: the gain of each on dev, its time and cost, and whether the run used it."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from pipelines.execute.rundir import RunDir
from pipelines.execute.step_display import duration_seconds
from pipelines.lines.rewriter import RunConfig
from qinglan.evaluation.headroom import Headroom
from qinglan.evaluation.stage_gain import StageGain, read_gain
from qinglan.evaluation.statistics import Estimate

RECIPES = {
    "sft": "learns the teacher's rewrites, and its further rows if they are taken; its gain is over the teacher",
    "augment": "adds the teacher's further rows to SFT, trained with them and without; its gain is the difference",
    "ppo": "strengthens what rewards prefer; its gain is that of the best sample over SFT",
}
LOGS = {"augment": "sft_log", "ppo": "ppo_log"}
"""The logs that hold a recipe's gain on dev."""


class Recipe(NamedTuple):
    """A training with its gain on dev and its cost."""

    name: str
    about: str
    gain: Estimate | None
    """Gain over the recipe before it, in the share of rows whose first passage is right; None if not known yet."""

    seconds: float | None
    cost: float | None
    basis: str
    """Source of the time: measured in this run, estimated by `fit`, or not known."""

    brought: float | None = None
    """Measured gain on dev; None before the recipe has run."""

    left_out: bool = False
    """True if the run continued without the recipe, because the retrievals on dev were worse with it."""


def recipes(run: RunDir, config: RunConfig, headroom: Headroom | None) -> Iterator[Recipe]:
    """Yield each recipe with its gain on dev, time and price. With `headroom`, a recipe that has not run yet is
    estimated."""
    estimated = estimates(config, run) if headroom else {}
    expected = {"sft": headroom.learned, "ppo": headroom.gain} if headroom else {}
    for name, about in RECIPES.items():
        seconds, cost, basis = measured_cost(run, name) or estimated.get(name, (None, None, "not known"))
        recipe = Recipe(name, about, expected.get(name), seconds, cost, basis)
        if name == "sft" and headroom:
            recipe = recipe._replace(brought=headroom.learned.value)
        yield with_gain(recipe, read_gain(run.shown(LOGS[name]))) if name in LOGS else recipe


def with_gain(recipe: Recipe, gain: StageGain | None) -> Recipe:
    """Return the recipe with its measured gain on dev. A gain in mean reward is ignored, because it is no share of
    questions."""
    if gain is None or gain.measure == "mean reward":
        return recipe
    low, high = gain.interval or (math.nan, math.nan)
    measured = recipe.gain or Estimate(gain.gain, low, high, gain.rows)
    return recipe._replace(gain=measured, brought=gain.gain, left_out=not gain.taken)


def gain_lines(run: RunDir, config: RunConfig) -> list[str]:
    """Report the recipes that this run compared on dev; empty if it compared none."""
    measured = [recipe for recipe in recipes(run, config, None) if recipe.brought is not None]
    lines = [f"{recipe.name}: {worth_in_words(recipe)}" for recipe in measured]
    return ["On dev, over what the run had before:", *lines] if lines else []


Cost = tuple[float | None, float | None, str]


def measured_cost(run: RunDir, stage: str) -> Cost | None:
    """Return the seconds of a stage that this run executed itself, otherwise None. The price is unknown, because the
    price of the machine is."""
    record = run.step_record(stage) or {}
    reused = record.get("facts", {}).get("reused")  # a training of an earlier attempt
    return (duration_seconds(record), None, "measured") if record.get("status") == "done" and not reused else None


def estimates(config: RunConfig, run: RunDir) -> dict[str, Cost]:
    """Estimate the seconds and the price of each training, as `qinglan fit` does."""
    import pyarrow.parquet

    from pipelines.checks.sizing.check import planned_fit_report
    from pipelines.checks.sizing.report import Workload

    train = run.shown("prompts") / "train.parquet"
    report = planned_fit_report(config, config.training, Workload(pyarrow.parquet.read_metadata(train).num_rows))
    return {
        pace.stage: (pace.hours * 3600, pace.cost, "estimated")
        for pace in (report.paces if report else ())
        if pace.hours is not None
    }


def with_interval(estimate: Estimate) -> str:
    """Format the value with its interval, or only the value if a single conversation gives no interval."""
    value = f"{estimate.value:+.3f}"
    return value if math.isnan(estimate.low) else f"{value} [{estimate.low:+.3f}, {estimate.high:+.3f}]"


def gain_in_words(recipe: Recipe) -> str:
    return f"gain {with_interval(recipe.gain)}" if recipe.gain else "gain not measured"


def cost_in_words(recipe: Recipe, currency: str) -> str:
    if recipe.seconds is None:
        return "time not known: hours on a CPU, or of an unknown model or card, are not estimated"
    time = f"{recipe.seconds:,.0f} s" if recipe.seconds < 7200 else f"{recipe.seconds / 3600:.1f} h"
    price = f", {recipe.cost:,.2f} {currency} of cards" if recipe.cost is not None else ""
    return f"{time}{price} ({recipe.basis})"


def worth_in_words(recipe: Recipe) -> str:
    points = 100 * (recipe.brought or 0.0)
    if recipe.left_out:
        return f"it gained {points:+.1f} points on dev and is left out"
    return f"it gained {points:+.1f} points on dev"
