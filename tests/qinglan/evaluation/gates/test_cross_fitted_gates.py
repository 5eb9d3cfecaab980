"""Both gates take an evaluation for cross-fitted by the same rule: fewer rows are enough for it."""

from typing import Any

import pytest

from qinglan.evaluation.gates import rewriter_gate, style_gate
from qinglan.evaluation.gates.verdict import EvaluationNumbers, Verdict
from tests.qinglan.evaluation.gates.test_rewriter_gate import GATE, cross_fitted
from tests.qinglan.evaluation.gates.test_style_gate import good as good_style

FEW = 60


def rewriter_verdict(folds: Any) -> Verdict:
    return rewriter_gate.decide(cross_fitted(FEW) | {"cross_fitted": folds}, GATE)


def style_verdict(folds: Any) -> Verdict:
    evaluation = good_style() | {"cross_fitted": folds}
    evaluation["counts"] = {**evaluation["counts"], "rows": FEW}
    return style_gate.decide(evaluation, style_gate.GateStyleConfig())


@pytest.mark.parametrize("verdict", [rewriter_verdict, style_verdict])
@pytest.mark.parametrize("folds", [{}, {"folds": 1}, {"folds": None}, {"folds": "2"}, True])
def test_folds_of_which_nobody_can_tell_the_number_hold(verdict: Any, folds: Any) -> None:
    held = verdict(folds)

    assert held.word == "hold"
    assert any("cross_fitted.folds" in reason for reason in held.reasons)


@pytest.mark.parametrize("verdict", [rewriter_verdict, style_verdict])
@pytest.mark.parametrize("folds", [0, 1])
def test_too_few_folds_are_a_reason_that_says_how_many_are_needed(verdict: Any, folds: int) -> None:
    reason = f"cross_fitted.folds is {folds}; at least 2 are needed. Run evaluate again."
    assert verdict({"folds": folds}).reasons.count(reason) == 1


@pytest.mark.parametrize("verdict", [rewriter_verdict, style_verdict])
def test_two_folds_are_enough(verdict: Any) -> None:
    assert verdict({"folds": 2}).word == "promote"


def test_without_folds_a_test_was_locked_away() -> None:
    assert not EvaluationNumbers({"counts": {"rows": FEW}}).cross_fitted
