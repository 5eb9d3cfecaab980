"""How well contenders stand in for the judge on held-out conversations, with intervals over these."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.pairwise.judged import SEED, Cut, Text, pairs
from qinglan.evaluation.statistics import INTERVAL_PERCENTILES, Estimate, bootstrap_means, group_numbers

DRAWS = 2_000
SAME = 1e-9

Floats = NDArray[np.float64]
Scores = Mapping[Text, float]


class ContenderScores(NamedTuple):
    """Scores of each contender on held-out conversations; `pairs` and `rollouts` name the conversation of each."""

    pairs: list[str]
    rollouts: list[str]
    truth: Floats
    """The judge's score of each rollout's rewrite above the teacher's."""

    right: dict[str, Floats]
    """By pair: 1 ordered as the judge orders it, .5 held for equal, 0 the other way."""

    predicted: dict[str, Floats]
    """A score by rollout, as `truth`."""


class Standing(NamedTuple):
    right: Estimate
    correlation: Estimate


def score_contenders(cut: Cut, scores: Mapping[str, Scores]) -> ContenderScores:
    """Compare the contenders' scores, by name, on the rollouts asked about."""
    apart = pairs(cut.queried)
    return ContenderScores(
        [better.conversation for better, _ in apart],
        [entry.student.conversation for entry in cut.queried],
        np.array([entry.ahead for entry in cut.queried]),
        {name: np.array([_right(by_text[a] - by_text[b]) for a, b in apart]) for name, by_text in scores.items()},
        {name: _predicted(cut, by_text) for name, by_text in scores.items()},
    )


def pooled(runs: Sequence[ContenderScores]) -> ContenderScores:
    """All of them as one; conversations of different runs stay apart."""
    return ContenderScores(
        [f"{at} {name}" for at, run in enumerate(runs) for name in run.pairs],
        [f"{at} {name}" for at, run in enumerate(runs) for name in run.rollouts],
        np.concatenate([run.truth for run in runs]),
        {name: np.concatenate([run.right[name] for run in runs]) for name in runs[0].right},
        {name: np.concatenate([run.predicted[name] for run in runs]) for name in runs[0].predicted},
    )


def standing(held: ContenderScores, name: str, than: str | None = None) -> Standing:
    """A contender's figures; or by how much they are above another's, on the same draws of conversations."""
    right, correlations = held.right[name], _correlations(held, name)
    if than:
        right, correlations = right - held.right[than], correlations - _correlations(held, than)
    low, high = np.nanpercentile(correlations[1:], INTERVAL_PERCENTILES)
    return Standing(
        bootstrap_means(right[:, None], group_numbers(held.pairs), DRAWS, SEED)[0],
        Estimate(float(correlations[0]), float(low), float(high), DRAWS),
    )


def _right(difference: float) -> float:
    return 0.5 if abs(difference) < SAME else float(difference > 0)


def _predicted(cut: Cut, by_text: Scores) -> Floats:
    """A line over the known rollouts brings a contender's differences to the judge's scale."""
    known, queried = ([by_text[entry.student] - by_text[entry.teacher] for entry in some] for some in cut)
    line = np.polyfit(known, [entry.ahead for entry in cut.known], 1)
    return np.polyval(line, np.array(queried))


def _correlations(held: ContenderScores, name: str) -> Floats:
    """The correlation with the truth, first over all rollouts, then over each draw of conversations."""
    x, y, conversations = held.predicted[name], held.truth, group_numbers(held.rollouts)
    size = int(conversations.max()) + 1
    sums = np.zeros((size, 6))
    np.add.at(sums, conversations, np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1))
    drawn = np.random.default_rng(SEED).multinomial(size, np.full(size, 1 / size), DRAWS)
    n, mx, my, mxx, myy, mxy = (np.vstack([np.ones((1, size)), drawn]) @ sums).T
    return np.asarray((n * mxy - mx * my) / np.sqrt((n * mxx - mx**2) * (n * myy - my**2)))
