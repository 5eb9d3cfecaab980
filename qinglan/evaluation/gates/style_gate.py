"""Gate of the style line: a pure function of evaluation.json and thresholds, which gives its reasons in words.

On a test from which it did not learn, the model must be significantly better than the baseline in macro F1, not much
worse for any label, and calibrated. Every input must be named by its digest. A distilled model's loss against its
teacher must be within a margin, at the lower end of the interval. The model is also held for a figure that is
missing, impossible or not a number, and for a setting laxer than its limit (gate_limits.py).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from qinglan.config import Config, Fraction, Positive
from qinglan.evaluation.gates.gate_limits import StyleLimits
from qinglan.evaluation.gates.leaks import leak_reasons
from qinglan.evaluation.gates.verdict import (
    Check,
    Comparison,
    EvaluationNumbers,
    Line,
    MissingNumberError,
    TooFew,
    Verdict,
    decide_line,
    describe_uses,
    level_of,
    missing_digests,
)

ROWS = ("counts", "rows")
AGAINST_BASELINE = Comparison(
    ("paired", "model_vs_baseline", "macro_f1"), "Model minus baseline, macro F1", "the baseline", ROWS, "rows"
)
AGAINST_TEACHER = Comparison(
    ("paired", "model_vs_large", "macro_f1"), "Model minus its teacher, macro F1", "its teacher", ROWS, "rows"
)


class GateStyleConfig(Config):
    """Limits that a style model must meet before it may serve. A missing or malformed figure holds the model."""

    rows: Positive = 200
    """Lowest number of test rows required. With 200 rows, an accuracy of 90 % is uncertain by 4 points."""

    cross_rows: Positive = 20
    """Lowest number of rows required of a cross-fitted evaluation. Its wide intervals show how little a few rows
    prove."""

    class_rows: Positive = 10
    """Lowest number of test rows required of each label."""

    p: Fraction = 0.05
    """Significance level. The permutation test's p of model against baseline in macro F1 must be lower than this
    level, divided by the number of models that the test has judged."""

    class_margin: Fraction = 0.05
    """Highest loss of F1 against the baseline allowed for each label, as a share. The interval is not used, because
    it is too wide for a single label."""

    teacher_margin: Fraction = 0.02
    """Highest loss of macro F1 against its teacher allowed for a distilled model, as a share. The lower end of the
    interval counts."""

    alike: float = Field(default=0.8, gt=0, le=1)
    """Lowest similarity to a row of train, dev or the unlabelled texts at which a test row counts as leaked. It is
    the Jaccard similarity of three-character pieces."""

    ece: Fraction = 0.05
    """Highest expected calibration error allowed."""

    ece_worse: Fraction = 0.01
    """Highest increase of the calibration error on the test that the temperature may cause. Even a good temperature
    near 1 changes the error by chance."""


def _enough_rows(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    cross_fitted, rows = numbers.cross_fitted, numbers(*ROWS)
    if cross_fitted and rows < gate.cross_rows:
        yield TooFew(f"Too few: {rows:.0f} rows were cross-fitted, and {gate.cross_rows} are wanted. Label more.")
    if not cross_fitted and rows < gate.rows:
        yield TooFew(f"Too few: the test has {rows:.0f} rows, and {gate.rows} are wanted.")


def _enough_of_each_label(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    if numbers.cross_fitted:
        return  # prepare refuses a label with one answer; the intervals show how few rows there are
    for label in _labels(numbers):
        if (rows := numbers("systems", "model", "classes", label, "support")) < gate.class_rows:
            yield TooFew(f"Too few: the test has {rows:.0f} rows labelled {label}, and {gate.class_rows} are wanted.")


def _better(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    yield from AGAINST_BASELINE.not_better(numbers, level_of(gate.p, numbers))


def _no_label_lost(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    for label in _labels(numbers):
        model, baseline = (
            numbers("systems", name, "classes", label, "f1", "value") for name in ("model", "baseline")
        )
        if baseline - model > gate.class_margin:
            yield (
                f"F1 of {label} is {100 * model:.1f}%, the baseline's {100 * baseline:.1f}%: more than "
                f"{100 * gate.class_margin:.1f} points below."
            )


def _close_to_teacher(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    if _is_distilled(numbers) and numbers(*AGAINST_TEACHER.path, "low") < -gate.teacher_margin:
        yield (
            f"At most {100 * gate.teacher_margin:.1f} points less than its teacher: not shown. "
            f"{AGAINST_TEACHER.summary(numbers)}"
        )


def _calibrated(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    after, before = (numbers("systems", name, "ece", "value") for name in ("model", "before"))
    if after > gate.ece:
        yield f"The calibration error is {100 * after:.1f}%; {100 * gate.ece:.1f}% are allowed."
    if after - before > gate.ece_worse:
        yield (
            f"The temperature makes the calibration error worse, {100 * before:.1f}% to {100 * after:.1f}%; "
            f"{100 * gate.ece_worse:.1f} points are allowed. Is dev like the test?"
        )


def _no_leak(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    yield from leak_reasons(numbers, ("train", "dev"), gate.alike)


def _named_by_digests(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    parents = ("teacher" if _is_distilled(numbers) else "base_model", "train", "dev", "labels")
    rows = [("digests", "rows", split) for split in ("train", "dev", "test")]
    made_from = [("digests", "parents", name) for name in parents]
    yield from missing_digests(numbers, ("digests", "model"), ("digests", "predictions"), *rows, *made_from)
    for part in ("train", "dev"):
        if numbers.value("digests", "parents", part) != numbers.value("digests", "rows", part):
            yield f"The model learned from another {part} than the one beside the test."


CONDITIONS: tuple[Check, ...] = (
    _enough_rows,
    _enough_of_each_label,
    _better,
    _no_label_lost,
    _close_to_teacher,
    _calibrated,
    _no_leak,
    _named_by_digests,
)


def _is_distilled(numbers: EvaluationNumbers) -> bool:
    parents = numbers.value("digests", "parents")
    return isinstance(parents, Mapping) and "teacher" in parents


def _labels(numbers: EvaluationNumbers) -> list[str]:
    labels = numbers.value("labels")
    if not isinstance(labels, list) or not labels or not all(isinstance(label, str) for label in labels):
        raise MissingNumberError("labels is no list of names")
    return labels


def _macro_f1(numbers: EvaluationNumbers) -> list[float]:
    return [100 * numbers("systems", "model", "macro_f1", name) for name in ("value", "low", "high")]


def _praise(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    yield AGAINST_BASELINE.summary(numbers)
    if _is_distilled(numbers):
        yield AGAINST_TEACHER.summary(numbers)
    (value, low, high), error = _macro_f1(numbers), numbers("systems", "model", "ece", "value")
    yield f"Macro F1 {value:.1f}% [{low:.1f}, {high:.1f}], calibration error {100 * error:.1f}%."


def _describe_folds(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    if numbers.cross_fitted:
        value, low, high = _macro_f1(numbers)
        yield (
            f"Cross-fitted: {numbers(*ROWS):.0f} rows, each judged by one of "
            f"{numbers('cross_fitted', 'folds'):.0f} models that did not learn from it: macro F1 {value:.1f}% "
            f"[{low:.1f}, {high:.1f}]. {AGAINST_BASELINE.summary(numbers)}"
        )


LINE = Line(CONDITIONS, _praise, _describe_folds, describe_uses, ("draws", "alike"))
LIMITS = StyleLimits()
"""Project's own limits, which hold everywhere; an organisation's trust policy may set stricter limits."""


def decide(evaluation: Mapping[str, Any], gate: GateStyleConfig, limits: StyleLimits = LIMITS) -> Verdict:
    """Return the verdict on the evaluated model; any doubt holds the model."""
    return decide_line(evaluation, LINE, gate, limits)
