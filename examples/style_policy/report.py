"""The files that a training leaves: log, curve, samples, and the card that travels with the weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson

from examples.style_policy.config import StylePolicyConfig
from examples.style_policy.responder import Answer
from examples.style_policy.watch import Alarm, Snapshot, Values, variety
from qinglan.config import Config, Positive
from qinglan.evaluation.statistics import bootstrap_means
from qinglan.files.files import atomic_write
from qinglan.pages.curves import CURVE_FILE, curve_svg

CARD = "policy.json"
METRICS, NEWEST, FINAL = "metrics.jsonl", "newest.jsonl", "final.jsonl"
SHOWN = 24
"""Questions whose answers are written down."""

DRAWS = 4000
"""Bootstrap draws of questions, for the interval of the judge's rise."""


class PolicyCard(Config):
    """Facts that travel with the weights."""

    stage: str
    rewarded: tuple[str, ...]
    """The manners it was rewarded for."""

    step: int
    """The GRPO step after which these weights were saved."""

    alarm: str = ""
    """The alarm that ended the training after it, if any."""

    max_new_tokens: Positive
    temperature: float
    parents: dict[str, str]
    """Digests of what it was made from."""


class AnswerSet(NamedTuple):
    """Answers to held-out questions, several to each in a row, and their scores, a row for each question."""

    prompts: list[str]
    answers: list[Answer]
    reward: Values
    judge: Values


def write_card(
    folder: Path, config: StylePolicyConfig, step: int, raised: Alarm | None, parents: dict[str, str]
) -> None:
    card = PolicyCard(
        stage="style_policy", rewarded=config.rewarded, step=step, alarm=raised.message if raised else "",
        max_new_tokens=config.max_new_tokens, temperature=config.temperature, parents=parents,
    )  # fmt: skip
    (folder / CARD).write_bytes(orjson.dumps(card.model_dump(mode="json"), option=orjson.OPT_INDENT_2))


def write_log(folder: Path, trained: Sequence[dict[str, float]], snapshots: Sequence[Snapshot]) -> None:
    """A line for each step, with what the look at it saw where there was one, and the curve of the snapshots."""
    by_step: dict[int, dict[str, float]] = {int(row["step"]): dict(row) for row in trained}
    for snapshot in snapshots:
        by_step.setdefault(snapshot.step, {}).update(snapshot._asdict())
    with atomic_write(folder / METRICS) as partial:
        partial.write_bytes(b"".join(orjson.dumps(by_step[at]) + b"\n" for at in sorted(by_step)))
    series = {
        "reward": [(snapshot.step, snapshot.reward) for snapshot in snapshots],
        "independent judge": [(snapshot.step, snapshot.judge) for snapshot in snapshots],
        "gap": [(snapshot.step, snapshot.gap) for snapshot in snapshots],
        "variety": [(snapshot.step, snapshot.variety) for snapshot in snapshots],
    }
    with atomic_write(folder / CURVE_FILE) as partial:
        partial.write_text(curve_svg("Held-out answers by step", series), encoding="utf-8")


def write_samples(path: Path, start: AnswerSet, now: AnswerSet) -> None:
    """The first answer to each of some questions, at the start and now, with what both scores say of it."""
    each = len(now.answers) // len(now.reward)
    lines = []
    for at in range(min(SHOWN, len(now.reward))):
        row: dict[str, object] = {"prompt": now.prompts[at * each]}
        for name, answers in (("start", start), ("now", now)):
            row[name] = {
                "answer": answers.answers[at * each].text, "reward": round(float(answers.reward[at, 0]), 3),
                "judge": round(float(answers.judge[at, 0]), 3),
            }  # fmt: skip
        lines.append(orjson.dumps(row) + b"\n")
    with atomic_write(path) as partial:
        partial.write_bytes(b"".join(lines))


def final_figures(start: AnswerSet, now: AnswerSet, snapshot: Snapshot, seed: int) -> dict[str, float]:
    """The stage's own figures, on questions that neither training nor the watch saw."""
    rises = (now.judge - start.judge).mean(axis=1)
    [judge] = bootstrap_means(rises[:, None], np.arange(len(rises)), DRAWS, seed)
    return {
        "reward_before": float(start.reward.mean()), "reward_after": snapshot.reward,
        "judge_before": float(start.judge.mean()), "judge_after": snapshot.judge, "judge_low": judge.low,
        "judge_high": judge.high, "gap_growth": snapshot.gap_growth, "kl": snapshot.kl, "distinct": snapshot.distinct,
        "variety_before": variety([answer.text for answer in start.answers]), "variety_after": snapshot.variety,
        "repeats": snapshot.repeats, "length_before": mean_length(start), "length_after": snapshot.length,
    }  # fmt: skip


def mean_length(answers: AnswerSet) -> float:
    """In characters."""
    return sum(len(answer.text) for answer in answers.answers) / len(answers.answers)
