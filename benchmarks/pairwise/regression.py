"""Ridge regressions of the judge's score: on what retrieval says of a text, straight as the reward has it or bent,
and on how the text's words stand to the conversation.
"""

import math
from collections.abc import Callable, Collection, Sequence

from benchmarks.pairwise.decisions import Decisions, Side
from qinglan.reward.episode import Prompt
from qinglan.reward.impute import Imputer
from qinglan.text import bigrams

STEPS = 5
"""A figure from 0 to 1 is told by how near it is to each of so many steps and 0."""

FAINT = 0.001
"""Scores of the first passage below it are alike."""

Features = Callable[[Prompt, str, Side], Sequence[float]]


def plain(prompt: Prompt, text: str, side: Side) -> list[float]:
    """What the reward gives its Imputer."""
    return [side.quality, side.top1]


def bent(prompt: Prompt, text: str, side: Side) -> list[float]:
    """The same two figures, with a weight where each step of one meets a step of the other."""
    bright = _near(brightness(side.top1))
    return [here * there for here in _near(side.quality) for there in bright]


def worded(prompt: Prompt, text: str, side: Side) -> list[float]:
    """And how much of the text the conversation knows, how much of the need it says."""
    return [*bent(prompt, text, side), *_near(known(prompt, text)), *_near(covered(prompt.need, text))]


def brightness(top1: float) -> float:
    """The first passage's score from 0 to 1 by its logarithm."""
    return 1 - math.log(max(top1, FAINT)) / math.log(FAINT)


def known(prompt: Prompt, text: str) -> float:
    return covered(text, f"{prompt.question} {prompt.history_summary}")


def covered(text: str, by: str) -> float:
    """The share of a text's pairs of letters that another holds."""
    wanted, there = set(bigrams(text)), set(bigrams(by))
    return len(wanted & there) / max(1, len(wanted))


def fitted(decisions: Decisions, fit: Collection[str], features: Features) -> tuple["Regression", list[float]]:
    """What the fit prompts' rollouts taught, and what was said in its time of each other rollout's difference."""
    regression, said = Regression(decisions, features), []
    for one in decisions.rollouts:
        if one.id in fit:
            regression.add(one.id, one.rewrite, one.student.judge)
            regression.add(one.id, one.teacher_rewrite, one.teacher.judge)
        else:
            said.append(regression.score(one.id, one.rewrite) - regression.score(one.id, one.teacher_rewrite))
    return regression, said


class Regression:
    """The reward's Imputer over the texts of a run."""

    def __init__(self, decisions: Decisions, features: Features) -> None:
        self._features = {
            (id, text): features(decisions.prompts[id], text, side)
            for id, sides in decisions.sides.items()
            for text, side in sides.items()
        }
        self._imputer = Imputer(len(next(iter(self._features.values()))))

    def add(self, id: str, text: str, judge: float) -> None:
        self._imputer.add(self._features[id, text], judge)

    def score(self, id: str, text: str) -> float:
        return self._imputer.predict(self._features[id, text])


def _near(place: float) -> list[float]:
    """How near a figure is to each step; the nearest two sum to 1."""
    return [max(0.0, 1 - abs(place * STEPS - step)) for step in range(STEPS + 1)]
