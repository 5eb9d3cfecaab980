"""Inflation factors of RL's gain over SFT: the gain by each measure that training optimises, over the gain by an
outsider's measure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from components.evaluation.rewriter.measures import METRICS
from qinglan.evaluation.inflation import describe, inflation
from qinglan.evaluation.metric_table import MetricTable

PAIR = ("rl", "sft")
"""The systems after and before training by the reward."""

JUDGE = "judge"
OUTSIDERS = {"judged_top1": "top1", JUDGE: "quality"}
"""The outsider's measure for each measure that training optimises, on the same scale: gold for the reranker's score
against the need, the examiner for the training's judge."""

NAMES = {name: metric.name for name, metric in METRICS.items()} | {JUDGE: "quality, by the training's judge"}


def inflation_results(table: MetricTable, judge: Sequence[Mapping[str, float]], one_judge: bool) -> dict[str, Any]:
    """The inflation factor of each measure that training optimises; empty without an SFT and an RL model.

    `judge` holds the training judge's scores of each row by system. With `one_judge` the examiner is the same model,
    so it is no outsider and the judge gets no factor.
    """
    if not set(PAIR) <= set(table.systems):
        return {}
    after, before = (np.array([row.get(system, math.nan) for row in judge]) for system in PAIR)
    gains = {"judged_top1": table.difference(PAIR, "judged_top1")} | ({} if one_judge else {JUDGE: after - before})
    return {
        name: inflation(
            gain, table.difference(PAIR, OUTSIDERS[name]), table.conversations, table.draws, table.seed
        )._asdict()
        for name, gain in gains.items()
    }


def inflation_lines(results: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each factor, or one that says that none is defined."""
    if not results:
        yield "Inflation factor: not defined, since no model here was trained by the reward."
    for name, part in results.items():
        yield f"Inflation factor of RL's gain over SFT, {describe(part, NAMES[name], NAMES[OUTSIDERS[name]])}"
