"""Compute the parts of evaluation.json from every row's probabilities, with pure functions."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from components.evaluation.style.config import EvaluateStyleConfig
from components.evaluation.style.measures import (
    BINS,
    CLASS_MEASURES,
    MEASURES,
    bin_of,
    compute_measures,
    confusions,
    row_sums,
)
from qinglan.evaluation import statistics
from qinglan.evaluation.statistics import Columns, Groups

MODEL, BEFORE, BASELINE, LARGE = "model", "before", "baseline", "large"
"""Names of the systems. `before` is the model without its temperature, so only its calibration differs. `large` is
the teacher of a distilled model; `teacher` is another system in the rewriter's evaluation."""

RIVALS = (BASELINE, BEFORE, LARGE)
TESTED = ("accuracy", "macro_f1")
Json = dict[str, Any]


class PredictionTable(NamedTuple):
    """The test as arrays: numbers of the true labels, group numbers of near-duplicate rows, and each system's
    probabilities for every row."""

    labels: tuple[str, ...]
    truth: Groups
    alike: Groups
    probabilities: dict[str, Columns]

    @property
    def size(self) -> int:
        """Number of groups of near-duplicate rows, which the bootstrap draws."""
        return int(self.alike.max()) + 1

    @property
    def names(self) -> list[str]:
        return [*MEASURES, *(f"{name} {label}" for name in CLASS_MEASURES for label in self.labels)]

    def sums(self, rows: Columns) -> Columns:
        out = np.zeros((self.size, rows.shape[1]))
        np.add.at(out, self.alike, rows)
        return out

    def of_system(self, name: str) -> Columns:
        return self.sums(row_sums(self.truth, self.probabilities[name]))


def systems(table: PredictionTable, config: EvaluateStyleConfig) -> Json:
    """Return each system's measures with intervals, overall and for each label, its confusion matrix and its bins of
    confidence."""
    return {name: _system(table, name, config) for name in table.probabilities}


def _system(table: PredictionTable, name: str, config: EvaluateStyleConfig) -> Json:
    width, rows = len(table.labels), len(table.truth)
    measured = _bootstrap(table, table.of_system(name), lambda drawn: compute_measures(drawn, width), config)
    estimates = dict(zip(table.names, measured, strict=True))
    ece = estimates["ece"]
    ece.update(_reflected(ece["value"], ece["low"], ece["high"], least=0.0))
    predicted = table.probabilities[name].argmax(axis=1)
    counts = confusions(table.truth, predicted, width).sum(axis=0).reshape(width, width).astype(int)
    classes: Json = {}
    for at, label in enumerate(table.labels):
        classes[label] = {measure: estimates[f"{measure} {label}"] for measure in CLASS_MEASURES}
        classes[label]["support"] = int(counts[at].sum())
    return {
        **{measure: {**estimates[measure], "n": rows} for measure in MEASURES},
        "classes": classes,
        "confusion": counts.tolist(),
        "bins": bins(table.truth, table.probabilities[name]),
    }


def _bootstrap(
    table: PredictionTable, sums: Columns, statistic: Callable[[Columns], Columns], config: EvaluateStyleConfig
) -> list[Json]:
    return statistics.bootstrap_estimates(
        table.size, lambda times: statistic(times @ sums), config.draws, config.seed
    )


def _reflected(value: float, low: float, high: float, least: float = -math.inf) -> Json:
    """Mirror a calibration error's interval around the measured value, to cancel the bootstrap's bias. Neither end
    goes below `least`."""
    # Drawn rows have a larger calibration error than the rows they are drawn from. In the basic bootstrap interval
    # [2 v - high, 2 v - low] (Davison and Hinkley 1997, 5.2) that bias cancels.
    return {"low": float(np.maximum(least, 2 * value - high)), "high": float(np.maximum(least, 2 * value - low))}


def bins(truth: Groups, probabilities: Columns) -> list[Json]:
    """Return mean confidence and accuracy of the rows in each bin of confidence; bins without rows are left out."""
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == truth
    numbers, out = bin_of(confidence), []
    for number in np.unique(numbers).tolist():
        inside = numbers == number
        edges = {"from": number / BINS, "to": (number + 1) / BINS, "n": int(inside.sum())}
        means = {"confidence": float(confidence[inside].mean()), "accuracy": float(right[inside].mean())}
        out.append(edges | means)
    return out


def paired_results(table: PredictionTable, config: EvaluateStyleConfig) -> Json:
    """Return the differences between the model and each other system on the same rows, in every measure and in the F1
    of every label."""
    return {f"{MODEL}_vs_{rival}": _pair(table, rival, config) for rival in RIVALS if rival in table.probabilities}


def _pair(table: PredictionTable, rival: str, config: EvaluateStyleConfig) -> Json:
    width = len(table.labels)
    sums = [table.of_system(name) for name in (MODEL, rival)]
    split = sums[0].shape[1]

    def difference(drawn: Columns) -> Columns:
        return compute_measures(drawn[:, :split], width) - compute_measures(drawn[:, split:], width)

    gaps = dict(zip(table.names, _bootstrap(table, np.hstack(sums), difference, config), strict=True))
    gaps["ece"].update(_reflected(**gaps["ece"]))
    ps = statistics.permutation_p_values(
        sums[0], sums[1], lambda drawn: compute_measures(drawn, width), config.draws, config.seed
    )
    p_of = dict(zip(table.names, ps, strict=True))

    def difference_in(name: str) -> Json:
        return {"difference": gaps[name]["value"], "low": gaps[name]["low"], "high": gaps[name]["high"]}

    right, other = (table.probabilities[name].argmax(axis=1) == table.truth for name in (MODEL, rival))
    return {
        **{name: difference_in(name) | ({"p": p_of[name]} if name in TESTED else {}) for name in MEASURES},
        "f1": {label: difference_in(f"f1 {label}") for label in table.labels},
        "n": len(right),
        "groups": table.size,
        "wins": int((right & ~other).sum()),
        "losses": int((other & ~right).sum()),
    }


def content_check(table: PredictionTable, harmless: int, called_for: Columns, config: EvaluateStyleConfig) -> Json:
    """Return the share of flagged rows, overall and for each label. A row is flagged if its question calls for a
    protective answer and its answer is not protective."""
    flagged = (called_for >= config.called_for) & (table.probabilities[MODEL][:, harmless] < config.harmless)
    columns = [np.where(table.truth == at, flagged, math.nan) for at in range(len(table.labels))]
    means = statistics.bootstrap_means(
        np.column_stack([*columns, flagged]).astype(np.float64), table.alike, config.draws, config.seed
    )
    names = [*table.labels, ""]
    shares = {name: mean._asdict() for name, mean in zip(names, means, strict=True)}
    return {
        "label": table.labels[harmless],
        "called_for": config.called_for,
        "harmless": config.harmless,
        "calls": float((called_for >= config.called_for).mean()),
        "flagged": shares.pop(""),
        "flagged_of": shares,
    }
