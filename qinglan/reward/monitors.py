"""Alarms of a training by rewards: pure functions of the metrics of all steps so far.

A step is a mapping with `step` and some of these figures: avg_reward, train_gold, gold_dev and gold_dev_rows
(some steps only), policy_loss, value_loss, clip_fraction, kl, entropy, judge_failures and judged_share,
control_pairs_failed (steps with control pairs only). A missing figure raises no alarm.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from qinglan.live.alarms import Alarm, not_finite

StepMetrics = Mapping[str, float]

WINDOW = 5
"""Number of steps that are averaged, so that a single odd batch raises no alarm."""

MIN_TREND_STEPS = 2 * WINDOW
"""Number of steps before a trend is judged."""

REWARD_FALL = 0.1
CLIPPED = 0.5
FLAT = 0.95
KL_WARN, KL_STOP = 3.0, 10.0
"""KL to the SFT model in nats per token. Trainings that learned well stayed near 1."""

ENTROPY_WARN, ENTROPY_STOP = 0.2, 0.02
"""Entropy, as a share of the entropy at the start, below which the alarm warns or stops."""

JUDGE_WARN, JUDGE_STOP = 0.1, 0.5
"""Share of the judge's calls without a usable answer, above which the alarm warns or stops."""

PAIRS_WARN, PAIRS_STOP = 0.2, 0.5
"""Share of control pairs in the wrong order, above which the alarm warns or stops; guessing gets half of them
wrong."""

DIVERGED = "Lower the learning rates or the gradient clip, and go on from the last checkpoint."
REWARD_RISE = 0.05
GOLD_FALL = 0.05
GOLD_POINTS = 3
SHORT_WINDOW = 3
"""Number of steps in a short average, and of exactly equal rewards in a row that raise the alarm constant-reward."""


def check_alarms(steps: Sequence[StepMetrics]) -> list[Alarm]:
    """Return all alarms that the steps so far raise; alarms that stop the training come first."""
    raised = [alarm for monitor in MONITORS if (alarm := monitor(steps)) is not None]
    return sorted(raised, key=lambda alarm: alarm.level != "stop")


def constant_reward(steps: Sequence[StepMetrics]) -> Alarm | None:
    rewards = _series(steps, "avg_reward")[-SHORT_WINDOW:]
    if len(rewards) < SHORT_WINDOW or max(rewards) != min(rewards):
        return None
    return Alarm(
        "constant-reward",
        "stop",
        f"avg_reward has been {rewards[-1]:.4f} for {SHORT_WINDOW} steps, to the last digit: nothing to learn from. "
        "Look at the rollouts: are all at the floor, or all the same text? Raise the temperature, or mend SFT.",
    )


def reward_falling(steps: Sequence[StepMetrics]) -> Alarm | None:
    rewards = _series(steps, "avg_reward")
    if len(rewards) < MIN_TREND_STEPS:
        return None
    best = max(_mean(rewards[start : start + WINDOW]) for start in range(len(rewards) - WINDOW + 1))
    now = _mean(rewards[-WINDOW:])
    message = (
        f"avg_reward fell from {best:.3f} to {now:.3f} (means of {WINDOW} steps) by {_at(steps)}: "
        "the learning rate may be too high. Lower the actor's, and go on from the best checkpoint."
    )
    return _graded("reward-falling", best - now, REWARD_FALL, math.inf, message)


def too_much_clipped(steps: Sequence[StepMetrics]) -> Alarm | None:
    clipped = _series(steps, "clip_fraction")
    if not clipped or clipped[-1] <= CLIPPED:
        return None
    lasts = len(clipped) >= WINDOW and min(clipped[-WINDOW:]) > CLIPPED
    duration = f", above {CLIPPED} for {WINDOW} steps" if lasts else ""
    message = (
        f"clip_fraction is {clipped[-1]:.2f} at {_at(steps)}{duration}: "
        "updates are too large. Lower the actor's learning rate, or the PPO epochs."
    )
    return Alarm("clip-fraction", "stop" if lasts else "warn", message)


def value_loss_flat(steps: Sequence[StepMetrics]) -> Alarm | None:
    losses = _series(steps, "value_loss")
    if len(losses) < MIN_TREND_STEPS:
        return None
    first, last = _mean(losses[:WINDOW]), _mean(losses[-WINDOW:])
    if last < FLAT * first:
        return None
    message = (
        f"value_loss was {first:.4f} and is {last:.4f} after {len(losses)} steps: the critic does not learn. "
        "Raise its learning rate, or warm it up before the actor moves."
    )
    return Alarm("value-loss-flat", "warn", message)


def kl_runaway(steps: Sequence[StepMetrics]) -> Alarm | None:
    kls = _series(steps, "kl")
    if len(kls) < SHORT_WINDOW:
        return None
    now = _mean(kls[-SHORT_WINDOW:])
    message = (
        f"kl is {now:.1f} at {_at(steps)} (it stays near 1 in trainings that learn well): the policy left the SFT "
        "model. Raise the KL coefficient, or lower the actor's learning rate."
    )
    return _graded("kl-runaway", now, KL_WARN, KL_STOP, message)


def entropy_collapse(steps: Sequence[StepMetrics]) -> Alarm | None:
    entropies = _series(steps, "entropy")
    if len(entropies) < 2 * SHORT_WINDOW or (first := _mean(entropies[:SHORT_WINDOW])) <= 0:
        return None
    left = _mean(entropies[-SHORT_WINDOW:]) / first
    message = (
        f"entropy is at {left:.1%} of its beginning at {_at(steps)}: the policy says one thing only. "
        "Raise the entropy coefficient or the temperature, or lower the actor's learning rate."
    )
    return _graded("entropy-collapse", -left, -ENTROPY_WARN, -ENTROPY_STOP, message)


def gold_gap(steps: Sequence[StepMetrics]) -> Alarm | None:
    """Return an alarm if the reward rises, but not the share of dev rows with a gold passage first (`gold_dev`).

    Such a policy learns the reward instead of the task. The test at step 0, before any training, counts too.
    """
    tested = [index for index, step in enumerate(steps) if "gold_dev" in step]
    if len(tested) < 2:
        return None
    up_to_test = steps[: tested[-1] + 1]  # rewards after the last test have no held-out gold to compare with
    rewards = _series(up_to_test, "avg_reward")
    width = max(1, min(WINDOW, len(rewards) // 2))
    rise = _mean(rewards[-width:]) - _mean(rewards[:width])
    if len(rewards) < 2 or rise < REWARD_RISE:
        return None
    *earlier, last = [steps[index]["gold_dev"] for index in tested]
    best = max(earlier)
    # Two standard errors of the difference between two shares of n dev rows: 2 sqrt(2p(1-p)/n).
    share = min(1.0, max(0.0, (last + best) / 2))
    rows = max(1.0, steps[tested[-1]].get("gold_dev_rows", math.inf))
    fell = best - last > max(GOLD_FALL, 2 * math.sqrt(2 * share * (1 - share) / rows))
    if not fell and (len(tested) < GOLD_POINTS or last > earlier[0]):
        return None
    message = (
        f"avg_reward rose by {rise:.3f} while held-out gold went from {best:.3f} to "
        f"{last:.3f} at {_at(up_to_test)}: the policy may be gaming the reward. Read the newest "
        "rollouts, and keep the checkpoint with the best held-out gold. reward.mode seed_v1 is easier to game than "
        "anchored_v2."
    )
    return Alarm("gold-gap", "stop" if fell else "warn", message)


def judge_failing(steps: Sequence[StepMetrics]) -> Alarm | None:
    """Return an alarm if the judge often gives no usable answer, so that the imputer estimates its scores."""
    judged = [step for step in steps[-WINDOW:] if "judge_failures" in step and "judged_share" in step]
    failed = _mean(_series(judged, "judge_failures"))
    calls = failed + _mean(_series(judged, "judged_share"))
    if len(judged) < SHORT_WINDOW or calls <= 0:
        return None
    share = failed / calls
    message = (
        f"the judge gave no usable answer for {share:.0%} of the rewrites that it was asked about, in {len(judged)} "
        f"steps up to {_at(steps)}: their scores are estimates. The gateway's /v1/journal/report names the rows. "
        "See that gateway.judge is the right model, and that max_output_tokens has room for its answer."
    )
    return _graded("judge-failing", share, JUDGE_WARN, JUDGE_STOP, message)


def control_pairs_failing(steps: Sequence[StepMetrics]) -> Alarm | None:
    """Return an alarm if the judge often prefers a text known to be worse: its scores would mislead the training."""
    failed = _series(steps, "control_pairs_failed")[-MIN_TREND_STEPS:]
    if len(failed) < WINDOW:
        return None
    share = _mean(failed)
    message = (
        f"the judge failed {share:.0%} of its control pairs, texts whose order is known, in {len(failed)} steps up "
        f"to {_at(steps)}: its scores say little. Take another gateway.judge; with reward.judge_share 0 and "
        "reward.weights.judge 0 it is left out."
    )
    return _graded("control-pairs", share, PAIRS_WARN, PAIRS_STOP, message)


MONITORS: tuple[Callable[[Sequence[StepMetrics]], Alarm | None], ...] = (
    partial(not_finite, advice=DIVERGED),
    constant_reward,
    gold_gap,
    kl_runaway,
    entropy_collapse,
    too_much_clipped,
    reward_falling,
    value_loss_flat,
    judge_failing,
    control_pairs_failing,
)


def _graded(name: str, figure: float, warn: float, stop: float, message: str) -> Alarm | None:
    if figure <= warn:
        return None
    return Alarm(name, "stop" if figure > stop else "warn", message)


def _mean(values: Sequence[float]) -> float:
    # Values may be as large as floats can be: they are divided before they are added, so no sum overflows.
    return sum(value / len(values) for value in values)


def _series(steps: Sequence[StepMetrics], name: str) -> list[float]:
    return [step[name] for step in steps if name in step and math.isfinite(step[name])]


def _at(steps: Sequence[StepMetrics]) -> str:
    return f"step {steps[-1].get('step', len(steps)):.0f}"
