"""Promote or hold: a pure function of evaluation.json and thresholds, with its reasons in words.

The model must surely beat the baseline in macro F1, lose no label to it, and know how sure it may be, on a test that
it did not learn from; and everything it was made from must be named. What is missing or not a number holds it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from components.evaluation.style.config import GateStyleConfig
from qinglan.leaks import leak_reasons
from qinglan.verdict import EvaluationNumbers, MissingNumberError, Verdict, collect_reasons, missing_digests

MADE_FROM = ("base_model", "train", "dev", "labels")
"""What a model's card names; a distilled one has a teacher in place of a base."""

PAIR = "model_vs_baseline"


def decide(evaluation: Mapping[str, Any], gate: GateStyleConfig) -> Verdict:
    """The verdict on the evaluated model; any doubt holds it."""
    numbers = EvaluationNumbers(evaluation)
    checks = (_check_row_count, _enough_of_each, _better, _no_label_lost, _calibrated, _check_leaks, _check_digests)
    if reasons := [reason for check in checks for reason in collect_reasons(check(numbers, gate))]:
        return Verdict(False, "hold", reasons)
    return Verdict(True, "promote", [_difference_summary(numbers), _score_summary(numbers)])


def _check_row_count(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    if (rows := numbers("counts", "rows")) < gate.rows:
        yield f"Too few: the test has {rows:.0f} rows, and {gate.rows} are wanted."


def _enough_of_each(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    for label in _labels(numbers):
        if (rows := numbers("systems", "model", "classes", label, "support")) < gate.class_rows:
            yield f"Too few: the test has {rows:.0f} rows labelled {label}, and {gate.class_rows} are wanted."


def _better(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    low, high, p = (numbers("paired", PAIR, "macro_f1", name) for name in ("low", "high", "p"))
    if high < 0:
        yield f"Worse than the baseline. {_difference_summary(numbers)}"
    elif low <= 0 or p >= gate.p:
        yield f"Better than the baseline: not shown. {_difference_summary(numbers)}"


def _no_label_lost(numbers: EvaluationNumbers, gate: GateStyleConfig) -> Iterator[str]:
    for label in _labels(numbers):
        own, theirs = (numbers("systems", name, "classes", label, "f1", "value") for name in ("model", "baseline"))
        if theirs - own > gate.class_margin:
            yield (
                f"F1 of {label} is {100 * own:.1f}%, the baseline's {100 * theirs:.1f}%: more than "
                f"{100 * gate.class_margin:.1f} points below."
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
    parents = numbers.value("digests", "parents")
    first = "teacher" if isinstance(parents, Mapping) and "teacher" in parents else "base_model"
    rows = [("digests", "rows", split) for split in ("train", "dev", "test")]
    made_from = [("digests", "parents", name) for name in (first, *MADE_FROM[1:])]
    yield from missing_digests(numbers, ("digests", "model"), ("digests", "predictions"), *rows, *made_from)
    for part in ("train", "dev"):
        if numbers.value("digests", "parents", part) != numbers.value("digests", "rows", part):
            yield f"The model learned from another {part} than the one beside the test."


def _labels(numbers: EvaluationNumbers) -> list[str]:
    labels = numbers.value("labels")
    if not isinstance(labels, list) or not labels or not all(isinstance(label, str) for label in labels):
        raise MissingNumberError("labels is no list of names")
    return labels


def _difference_summary(numbers: EvaluationNumbers) -> str:
    difference, low, high, p = (
        numbers("paired", PAIR, "macro_f1", name) for name in ("difference", "low", "high", "p")
    )
    rows = numbers("counts", "rows")
    return (
        f"Model minus baseline, macro F1: {100 * difference:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}], "
        f"p {p:.4f}, {rows:.0f} rows."
    )


def _score_summary(numbers: EvaluationNumbers) -> str:
    value, low, high = (numbers("systems", "model", "macro_f1", name) for name in ("value", "low", "high"))
    return (
        f"Macro F1 {100 * value:.1f}% [{100 * low:.1f}, {100 * high:.1f}], "
        f"calibration error {100 * numbers('systems', 'model', 'ece', 'value'):.1f}%."
    )
