"""Rename a step's metrics from verl's names to ours."""

import math
from collections.abc import Mapping
from typing import Any

Step = dict[str, float]

NAMES = {
    "actor/pg_loss": "policy_loss",
    "critic/vf_loss": "value_loss",
    "actor/pg_clipfrac": "clip_fraction",
    # If the rollout's log-probabilities serve as the old policy's, verl computes the entropy in the update only.
    "actor/entropy_loss": "entropy",
    "actor/entropy": "entropy",
    "actor/reward_kl_penalty": "kl",
    "critic/vf_explained_var": "explained_variance",
    "response_length/mean": "length_tokens",
    "response_length/clip_ratio": "cut_rate",
    "actor/lr": "actor_learning_rate",
    "timing_s/step": "seconds",
    "timing_s/gen": "seconds_rollout",
    "timing_s/testing": "seconds_dev",
    "reward/seconds_unhidden": "seconds_reward_unhidden",
    "reward/seconds_mean": "seconds_reward_mean",
}
UPDATE = ("timing_s/update_actor", "timing_s/update_critic")
PASSES = ("timing_s/old_log_prob", "timing_s/ref", "timing_s/values", "timing_s/adv")
REWARD = "reward/"
RENAMED = {"gold": "train_gold"}
TESTED = {"gold": "gold", "gold_known": "gold_known", "score": "reward", "win": "win", "copied": "copy_rate"}
"""Reward terms that are averaged over dev, with their names in our metrics."""


def parse_step(line: Mapping[str, Any], dev: Mapping[str, int]) -> Step:
    """Parse a line of verl's file logger into our names. `dev` has the number of dev rows by data source."""
    # verl's file logger writes NaN as null, since it uses orjson (verl/utils/tracking.py). Alarms need the NaN.
    data = {name: math.nan if value is None else float(value) for name, value in line["data"].items()}
    out: Step = {"step": float(line["step"])}
    out |= {name: data[verl_name] for verl_name, name in NAMES.items() if verl_name in data}
    out |= {
        RENAMED.get(name := key.removeprefix(REWARD), name): value
        for key, value in data.items()
        if key.startswith(REWARD) and key not in NAMES
    }
    if "critic/score/mean" in data:
        out.setdefault("avg_reward", data["critic/score/mean"])
        out["seconds_update"] = sum(data.get(name, 0.0) for name in UPDATE)
        out["seconds_passes"] = sum(data.get(name, 0.0) for name in PASSES)
    return out | dev_metrics(data, dev)


def dev_metrics(data: Mapping[str, float], dev: Mapping[str, int]) -> Step:
    """Return the dev figures over all tenants, with each row counted once; gold is over the rows with gold."""
    sums = dict.fromkeys(TESTED, 0.0)
    rows = 0
    for source, count in dev.items():
        prefix = f"val-aux/{source}/"
        if f"{prefix}score/mean@1" in data:
            rows += count
            for name in TESTED:
                sums[name] += count * data.get(f"{prefix}{name}/mean@1", 0.0)
    if not rows:
        return {}
    out = {f"{TESTED[name]}_dev": value / rows for name, value in sums.items() if name in ("score", "copied")}
    if sums["gold_known"]:
        out["gold_dev"] = sums["gold"] / sums["gold_known"]
        out["gold_dev_rows"] = sums["gold_known"]
    return out


def dev_score(step: Mapping[str, float]) -> float | None:
    """Return the score that compares checkpoints: gold on dev, else the reward on dev; None without a test on dev."""
    return step.get("gold_dev", step.get("reward_dev"))


def step_summary(step: Mapping[str, float]) -> str:
    shown = {"avg_reward": "mean reward", "win_rate": "wins", "train_gold": "gold", "gold_dev": "gold on dev"}
    return ", ".join(f"{word} {step[name]:.3f}" for name, word in shown.items() if name in step)
