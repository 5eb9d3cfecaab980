"""Summarise rollouts in figures, such as each reward term's share of the reward's variance."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import orjson

from qinglan.reward.terms.reward_terms import PART_PREFIX

Rollout = Mapping[str, Any]


def read_rollouts(folder: Path) -> Iterator[dict[str, Any]]:
    """Read every rollout from the workers' files in the folder; a line that a killed worker cut short is skipped."""
    for path in sorted(folder.glob("rollouts-*.jsonl")):
        # A worker writes whole lines, so a line without its end is the last write of a killed one.
        with path.open("rb") as lines:
            yield from (orjson.loads(line) for line in lines if line.endswith(b"}\n"))


def summarise_rollouts(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Return figures for a step's log; empty without rollouts. `gold` is a mean over rows with gold or labels."""
    if not rollouts:
        return {}
    labelled = [rollout for rollout in rollouts if rollout["gold_known"]]
    with_control_pair = [rollout for rollout in rollouts if rollout["control_pair"]]
    figures = {
        "avg_reward": _mean(rollouts, "score"),
        "win_rate": fmean(rollout["win"] > 0 for rollout in rollouts),
        "loss_rate": fmean(rollout["win"] < 0 for rollout in rollouts),
        "student_top1": _mean(rollouts, "top1"),
        "teacher_top1": _mean(rollouts, "top1_teacher"),
        "copy_rate": _mean(rollouts, "copied"),
        "floor_rate": _mean(rollouts, "floor"),
        "kept_rate": _mean(rollouts, "kept"),
        "length": _mean(rollouts, "length"),
        "invented_numbers": fmean(rollout["numbers"] > 0 for rollout in rollouts),
        "judged_share": _mean(rollouts, "judged"),
        "judge_failures": _mean(rollouts, "judge_failed"),
        "judge_weight": variance_shares(rollouts).get("judge", 0.0),
    }
    if labelled:
        figures |= {"gold": _mean(labelled, "gold"), "gold_teacher": _mean(labelled, "gold_teacher")}
    if by_labels := [rollout for rollout in rollouts if rollout["labelled"]]:
        figures["labelled_share"] = len(by_labels) / len(rollouts)
        figures["unjudged_share"] = _mean(by_labels, "unjudged")
    if with_control_pair:
        figures["control_pairs_failed"] = _mean(with_control_pair, "control_pair_failed")
    return figures


def variance_shares(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Return each part's share of the reward's variance; the shares sum to about 1. Floored rollouts are left out.

    The judge's share is its effective weight, which may differ from its weight in the settings. All shares are 0 if
    all rewards are equal.
    """
    counted = [rollout for rollout in rollouts if not rollout["floor"]]
    names = [name for name in counted[0] if name.startswith(PART_PREFIX)] if counted else []
    totals = [sum(rollout[name] for name in names) for rollout in counted]
    spread = _covariance(totals, totals) if counted else 0.0
    # Var(total) is the sum over parts of Cov(part, total), so each covariance is that part's contribution.
    contributions = {name: _covariance([rollout[name] for rollout in counted], totals) for name in names}
    return {name.removeprefix(PART_PREFIX): part / spread if spread else 0.0 for name, part in contributions.items()}


def _mean(rollouts: Iterable[Rollout], name: str) -> float:
    return fmean(rollout[name] for rollout in rollouts)


def _covariance(left: Sequence[float], right: Sequence[float]) -> float:
    middle, other = fmean(left), fmean(right)
    return fmean((a - middle) * (b - other) for a, b in zip(left, right, strict=True))
