"""The reward of an answer: the style model's probability of the rewarded manners.

An answer without a word earns 0, the least there is: a rule, since there is no style in it to ask about. Everything
else that cannot be scored is an error. TRL would count a reward that is no number as zero and train on it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qinglan.errors import ConfigError, TrainingError
from qinglan.style.labels import Labels
from qinglan.style.model import StyleModel

EMPTY = 0.0

Score = Callable[[Sequence[str], Sequence[str]], NDArray[np.float64]]
"""Prompts and answers to numbers from 0 to 1."""


def check_labels(model: Labels, rows: Labels, rewarded: Sequence[str]) -> None:
    """Style model and rows speak of the same manners, and of the wanted ones."""
    if model.names != rows.names:
        raise ConfigError(
            f"The style model knows {model.names}, the rows {rows.names}. Take those that belong together."
        )
    if len(rewarded) == len(model.names):
        raise ConfigError(
            "style_policy.rewarded: all labels there are, so that every answer earns 1. Leave some out."
        )
    if unknown := [name for name in rewarded if name not in model.ids]:
        raise ConfigError(f"style_policy.rewarded: {unknown[0]!r} is none of {', '.join(model.names)}.")


def style_score(model: StyleModel, rewarded: Sequence[str]) -> Score:
    """The reward, as a function."""
    columns = [model.labels.ids[name] for name in rewarded]

    def probability(texts: Sequence[str]) -> NDArray[np.float64]:
        return np.asarray(model.probabilities(texts)[:, columns].sum(axis=1))

    return of_answers(probability)


def of_answers(probability: Callable[[Sequence[str]], NDArray[np.float64]]) -> Score:
    """A score of whole texts as one of answers, with the rule for empty ones, and an error for what is no number."""

    def score(prompts: Sequence[str], answers: Sequence[str]) -> NDArray[np.float64]:
        written = [at for at, answer in enumerate(answers) if answer.strip()]
        out = np.full(len(answers), EMPTY)
        if written:
            out[written] = probability([prompts[at] + answers[at] for at in written])
        if not np.isfinite(out).all():
            bad = int(np.flatnonzero(~np.isfinite(out))[0])
            raise TrainingError(
                f"The style model gave {out[bad]} for {answers[bad][:80]!r}. Its weights are broken: train it again."
            )
        return out

    return score


def trl_reward(score: Score) -> Callable[..., list[float]]:
    """As GRPOTrainer calls it."""

    def style(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        return [float(value) for value in score(prompts, completions)]

    return style
