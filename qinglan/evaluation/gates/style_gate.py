"""Promote or hold a style model: a pure function of evaluation.json and thresholds, with its reasons in words.

The model must surely beat the baseline in macro F1, lose no label to it, and know how sure it may be, on a test that
it did not learn from; and everything it was made from must be named. A distilled one may be below its teacher by a
margin, at the lower end of the interval. What is missing, impossible or not a number holds it, and so does a setting
that is laxer than the limits (gate_limits.py).
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pydantic import Field

from qinglan.config import Config, Fraction, Positive
from qinglan.evaluation.gates.gate_limits import StyleLimits
from qinglan.evaluation.gates.leaks import leak_reasons
from qinglan.evaluation.gates.verdict import (
    Check,
    Comparison,
    EvaluationNumbers,
    MissingNumberError,
    TooFew,
    Verdict,
    describe_uses,
    judged_models,
    limit_reasons,
    missing_digests,
    run_checks,
    with_description,
)

MADE_FROM = ("base_model", "train", "dev", "labels")
"""Names on a model's card; a distilled one has a teacher in place of a base."""

AGAINST_BASELINE = Comparison(
    ("paired", "model_vs_baseline", "macro_f1"), "Model minus baseline, macro F1", "the baseline",
    ("counts", "rows"), "rows",
)  # fmt: skip


AGAINST_TEACHER = Comparison(
    ("paired", "model_vs_large", "macro_f1"), "Model minus its teacher, macro F1", "its teacher",
    ("counts", "rows"), "rows",
)  # fmt: skip


class GateStyleConfig(Config):
    """Limits that a style model must meet before it may serve. Whatever cannot be read holds it."""

    rows: Positive = 200
    """Fewer test rows prove nothing: at 200 an accuracy of 90 % is uncertain by 4 points."""

    cross_rows: Positive = 20
    """Rows of a cross-fitted evaluation, at least; how little so few can show is in its intervals."""

    class_rows: Positive = 10
    """Test rows of each label, at least."""

    p: Fraction = 0.05
    """The permutation test's p of model against baseline in macro F1 must be below."""

    class_margin: Fraction = 0.05
    """How far a label's F1 may be below the baseline's, without its interval: that of a single label is too wide."""

    teacher_margin: Fraction = 0.02
    """How far a distilled model's macro F1 may be below its teacher's, at the interval's lower end."""

    alike: float = Field(default=0.8, gt=0, le=1)
    """A test row so like one of train, dev or the unlabelled texts leaked (three-character pieces)."""

    ece: Fraction = 0.05
    """The expected calibration error, at most."""

    ece_worse: Fraction = 0.01
    """How far the temperature may raise the test's calibration error: a temperature near 1 moves it by chance."""


LIMITS = StyleLimits()
"""The limits that hold everywhere; an organisation's trust policy may have stricter ones."""


def decide(evaluation: Mapping[str, Any], gate: GateStyleConfig, limits: StyleLimits = LIMITS) -> Verdict:
    """The verdict on the evaluated model; any doubt holds it."""
    within = partial(_within_limits, limits=limits)
    verdict = run_checks(evaluation, (within, *CHECKS), _praise, gate)
    numbers = EvaluationNumbers(evaluation)
    verdict = with_description(verdict, _describe_folds(numbers))
    return with_description(verdict, describe_uses(numbers, gate.p), last=True)


def _describe_folds(numbers: EvaluationNumbers) -> Iterator[str]:
    """The way a small data set was judged, with its figure, whatever the verdict."""
    if not numbers.cross_fitted:
        return
    value, low, high = (numbers("systems", "model", "macro_f1", name) for name in ("value", "low", "high"))
    yield (
        f"Cross-fitted: {numbers('counts', 'rows'):.0f} rows, each judged by one of "
        f"{numbers('cross_fitted', 'folds'):.0f} models that did not learn from it: macro F1 {100 * value:.1f}% "
        f"[{100 * low:.1f}, {100 * high:.1f}]. {AGAINST_BASELINE.summary(numbers)}"
    )


def _within_limits(numbers: EvaluationNumbers, gate: GateStyleConfig, limits: StyleLimits) -> Iterator[str]:
    yield from limit_reasons(numbers, gate, limits, ("draws", "alike"))


def _check_row_count(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    if numbers.cross_fitted:
        if (rows := numbers("counts", "rows")) < gate.cross_rows:
            yield TooFew(f"Too few: {rows:.0f} rows were cross-fitted, and {gate.cross_rows} are wanted. Label more.")
        return
    if (rows := numbers("counts", "rows")) < gate.rows:
        yield TooFew(f"Too few: the test has {rows:.0f} rows, and {gate.rows} are wanted.")


def _enough_of_each(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    if numbers.cross_fitted:
        return  # prepare refuses a label with one answer; its interval says the rest
    for label in _labels(numbers):
        if (rows := numbers("systems", "model", "classes", label, "support")) < gate.class_rows:
            yield TooFew(f"Too few: the test has {rows:.0f} rows labelled {label}, and {gate.class_rows} are wanted.")


def _better(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    yield from AGAINST_BASELINE.not_better(numbers, gate.p / judged_models(numbers))


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


def _check_leaks(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    yield from leak_reasons(numbers, ("train", "dev"), gate.alike)


def _check_digests(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    first = "teacher" if _is_distilled(numbers) else "base_model"
    rows = [("digests", "rows", split) for split in ("train", "dev", "test")]
    made_from = [("digests", "parents", name) for name in (first, *MADE_FROM[1:])]
    yield from missing_digests(numbers, ("digests", "model"), ("digests", "predictions"), *rows, *made_from)
    for part in ("train", "dev"):
        if numbers.value("digests", "parents", part) != numbers.value("digests", "rows", part):
            yield f"The model learned from another {part} than the one beside the test."


CHECKS: tuple[Check, ...] = (
    _check_row_count,
    _enough_of_each,
    _better,
    _no_label_lost,
    _close_to_teacher,
    _calibrated,
    _check_leaks,
    _check_digests,
)


def _is_distilled(numbers: EvaluationNumbers) -> bool:
    parents = numbers.value("digests", "parents")
    return isinstance(parents, Mapping) and "teacher" in parents


def _labels(numbers: EvaluationNumbers) -> list[str]:
    labels = numbers.value("labels")
    if not isinstance(labels, list) or not labels or not all(isinstance(label, str) for label in labels):
        raise MissingNumberError("labels is no list of names")
    return labels


def _praise(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    yield AGAINST_BASELINE.summary(numbers)
    if _is_distilled(numbers):
        yield AGAINST_TEACHER.summary(numbers)
    value, low, high = (numbers("systems", "model", "macro_f1", name) for name in ("value", "low", "high"))
    error = numbers("systems", "model", "ece", "value")
    yield f"Macro F1 {100 * value:.1f}% [{100 * low:.1f}, {100 * high:.1f}], calibration error {100 * error:.1f}%."
