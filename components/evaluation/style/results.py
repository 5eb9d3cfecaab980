"""evaluation.json, put together from every row's probabilities: pure."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from components.evaluation.style.config import EvaluateStyleConfig
from components.evaluation.style.measures import (
    BINS,
    CLASS_MEASURES,
    MEASURES,
    accuracy,
    auc,
    bin_of,
    compute_measures,
    confusions,
    macro_f1,
    row_sums,
)
from qinglan import statistics
from qinglan.statistics import Columns, Groups

MODEL, BEFORE, BASELINE = "model", "before", "baseline"
SYSTEMS = (MODEL, BEFORE, BASELINE)
"""`before` is the model without its temperature: only its calibration differs."""

PAIRS = ((MODEL, BASELINE), (MODEL, BEFORE))
TESTED = ("accuracy", "macro_f1")
COVERAGES = tuple(round(1 - step / 20, 2) for step in range(11))
Json = dict[str, Any]


class PredictionTable(NamedTuple):
    """The test: true labels by number, which rows are alike, and what each system says of every row."""

    labels: tuple[str, ...]
    truth: Groups
    alike: Groups
    probabilities: dict[str, Columns]

    @property
    def size(self) -> int:
        """Groups that can be drawn."""
        return int(self.alike.max()) + 1

    @property
    def names(self) -> list[str]:
        """Of what `measured` gives."""
        return [*MEASURES, *(f"{name} {label}" for name in CLASS_MEASURES for label in self.labels)]

    def sums(self, rows: Columns) -> Columns:
        """The rows of each group added up."""
        out = np.zeros((self.size, rows.shape[1]))
        np.add.at(out, self.alike, rows)
        return out

    def of_system(self, name: str) -> Columns:
        return self.sums(row_sums(self.truth, self.probabilities[name]))


def systems(table: PredictionTable, config: EvaluateStyleConfig) -> Json:
    """Each system's measures with their intervals, its labels, its confusion matrix and its bins."""
    return {name: _system(table, name, config) for name in SYSTEMS}


def _system(table: PredictionTable, name: str, config: EvaluateStyleConfig) -> Json:
    width, rows = len(table.labels), len(table.truth)
    found = dict(zip(table.names, _estimates(table, table.of_system(name), config), strict=True))
    predicted = table.probabilities[name].argmax(axis=1)
    counts = confusions(table.truth, predicted, width).sum(axis=0).reshape(width, width).astype(int)
    classes = {
        label: {**{one: found[f"{one} {label}"] for one in CLASS_MEASURES}, "support": int(counts[at].sum())}
        for at, label in enumerate(table.labels)
    }
    return {
        **{one: {**found[one], "n": rows} for one in MEASURES}, "classes": classes,
        "confusion": counts.tolist(), "bins": bins(table.truth, table.probabilities[name]),
    }  # fmt: skip


def _estimates(table: PredictionTable, sums: Columns, config: EvaluateStyleConfig) -> list[Json]:
    width = len(table.labels)
    found = _bootstrap(table, sums, lambda drawn: compute_measures(drawn, width), config)
    ece = found[MEASURES.index("ece")]
    ece.update(_reflected(ece["value"], ece["low"], ece["high"], least=0.0))
    return found


def _bootstrap(
    table: PredictionTable, sums: Columns, statistic: Callable[[Columns], Columns], config: EvaluateStyleConfig
) -> list[Json]:
    """Values of the statistic on all groups, with the intervals of drawn ones."""
    values = statistic(sums.sum(axis=0)[None, :])[0]
    low, high = statistics.bootstrap_intervals(
        table.size, lambda times: statistic(times @ sums), config.draws, config.seed
    )
    return [{"value": float(values[at]), "low": float(low[at]), "high": float(high[at])} for at in range(len(values))]


def _reflected(value: float, low: float, high: float, least: float = -math.inf) -> Json:
    """Drawn rows have a larger calibration error than the rows they are drawn from; mirrored at it, that cancels."""
    return {"low": float(np.maximum(least, 2 * value - high)), "high": float(np.maximum(least, 2 * value - low))}


def bins(truth: Groups, probabilities: Columns) -> list[Json]:
    """The rows by their confidence: how sure the answers of each bin are, and how often right."""
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == truth
    at = bin_of(confidence)
    return [
        {
            "from": number / BINS, "to": (number + 1) / BINS, "n": int(inside.sum()),
            "confidence": float(confidence[inside].mean()), "accuracy": float(right[inside].mean()),
        }
        for number in range(BINS)
        if (inside := at == number).any()
    ]  # fmt: skip


def paired_results(table: PredictionTable, config: EvaluateStyleConfig) -> Json:
    """One system minus another on the same rows, measure by measure, and F1 label by label."""
    return {f"{one}_vs_{other}": _pair(table, one, other, config) for one, other in PAIRS}


def _pair(table: PredictionTable, one: str, other: str, config: EvaluateStyleConfig) -> Json:
    width = len(table.labels)
    sums = [table.of_system(name) for name in (one, other)]
    split = sums[0].shape[1]

    def difference(drawn: Columns) -> Columns:
        return compute_measures(drawn[:, :split], width) - compute_measures(drawn[:, split:], width)

    found = dict(zip(table.names, _bootstrap(table, np.hstack(sums), difference, config), strict=True))
    found["ece"].update(_reflected(**found["ece"]))
    ps = statistics.permutation_p_values(
        sums[0], sums[1], lambda drawn: compute_measures(drawn, width), config.draws, config.seed
    )
    by_name = dict(zip(table.names, ps, strict=True))
    return {
        **{name: _difference(found[name]) | _p(name, by_name) for name in MEASURES},
        "f1": {label: _difference(found[f"f1 {label}"]) for label in table.labels},
        **_wins_and_losses(table, one, other),
    }


def _difference(found: Json) -> Json:
    return {"difference": found["value"], "low": found["low"], "high": found["high"]}


def _p(name: str, ps: dict[str, float]) -> Json:
    return {"p": ps[name]} if name in TESTED else {}


def _wins_and_losses(table: PredictionTable, one: str, other: str) -> Json:
    """Rows that only one of them has right."""
    own, theirs = (table.probabilities[name].argmax(axis=1) == table.truth for name in (one, other))
    return {"n": len(own), "groups": table.size, "wins": int((own & ~theirs).sum()),
            "losses": int((theirs & ~own).sum())}  # fmt: skip


def abstention(table: PredictionTable, config: EvaluateStyleConfig) -> Json:
    """What is right of the answers that are kept when the least sure ones are left to people."""
    return {name: _coverage_steps(table, name, config) for name in (MODEL, BASELINE)}


def _coverage_steps(table: PredictionTable, name: str, config: EvaluateStyleConfig) -> list[Json]:
    width, probabilities = len(table.labels), table.probabilities[name]
    confidence = probabilities.max(axis=1)
    sure = np.sort(confidence)[::-1]
    thresholds = [float(sure[max(1, round(share * len(sure))) - 1]) for share in COVERAGES]
    kept = [confidence >= threshold for threshold in thresholds]
    counts = confusions(table.truth, probabilities.argmax(axis=1), width)
    sums = table.sums(np.hstack([counts * inside[:, None] for inside in kept]))

    def statistic(drawn: Columns) -> Columns:
        steps = drawn.reshape(-1, width, width)
        return np.column_stack([one(steps).reshape(len(drawn), -1) for one in (accuracy, macro_f1)])

    found = _bootstrap(table, sums, statistic, config)
    return [
        {
            "coverage": float(kept[at].mean()), "threshold": threshold, "n": int(kept[at].sum()),
            "accuracy": found[at], "macro_f1": found[len(COVERAGES) + at],
        }
        for at, threshold in enumerate(thresholds)
    ]  # fmt: skip


def content_check(table: PredictionTable, harmless: int, called_for: Columns, config: EvaluateStyleConfig) -> Json:
    """Whether P(harmless) of the question alone tells which questions call for protection, and what is flagged.

    A row is flagged when its question calls for protection and its answer does not give it.
    """
    protective = table.truth == harmless
    answers = table.probabilities[MODEL][:, harmless]
    flagged = (called_for >= config.called_for) & (answers < config.harmless)
    columns = [np.where(table.truth == at, flagged, math.nan) for at in range(len(table.labels))]
    found = statistics.bootstrap_means(
        np.column_stack([*columns, flagged]).astype(np.float64), table.alike, config.draws, config.seed
    )
    names = [*table.labels, ""]
    shares = {name: one._asdict() for name, one in zip(names, found, strict=True)}
    return {
        "label": table.labels[harmless], "called_for": config.called_for, "harmless": config.harmless,
        "auc_question": _auc(table, called_for, protective, config),
        "auc_answer": _auc(table, answers, protective, config),
        "calls": float((called_for >= config.called_for).mean()), "flagged": shares.pop(""), "flagged_of": shares,
    }  # fmt: skip


def _auc(table: PredictionTable, scores: Columns, positive: NDArray[np.bool_], config: EvaluateStyleConfig) -> Json:
    value = float(auc(scores, positive, np.ones((1, len(scores))))[0])
    low, high = statistics.bootstrap_intervals(
        table.size, lambda times: auc(scores, positive, times[:, table.alike])[:, None], config.draws, config.seed
    )
    return {"value": value, "low": float(low[0]), "high": float(high[0])}
