"""Promote or hold: by table, and by what no evaluation can break."""

import copy
from typing import Any

import pytest

from qinglan.evaluation.gates.style_gate import GateStyleConfig, decide
from tests.components.evaluation.style.sample_predictions import ORIGINS

GATE = GateStyleConfig()
WORSE = {"difference": -0.05, "low": -0.08, "high": -0.01, "p": 0.01}


def good() -> dict[str, Any]:
    def system(f1: float, ece: float) -> dict[str, Any]:
        level = {"value": f1, "low": f1 - 0.03, "high": f1 + 0.03}
        classes = {label: {"f1": {"value": f1}, "support": 60} for label in ("售前", "无伤害")}
        return {"macro_f1": level, "ece": {"value": ece}, "classes": classes}

    return {
        "labels": ["售前", "无伤害"],
        "counts": {"rows": 400},
        "systems": {"model": system(0.9, 0.03), "before": system(0.9, 0.07), "baseline": system(0.83, 0.1)},
        "paired": {"model_vs_baseline": {"macro_f1": {"difference": 0.07, "low": 0.03, "high": 0.11, "p": 0.001}}},
        **copy.deepcopy(ORIGINS._asdict()),
    }


def changed(path: str, value: Any) -> dict[str, Any]:
    evaluation = copy.deepcopy(good())
    *names, last = path.split(".")
    node = evaluation
    for name in names:
        node = node[name]
    node[last] = value
    return evaluation


def test_a_model_that_is_better_everywhere_is_promoted_with_its_figures() -> None:
    verdict = decide(good(), GATE)

    assert (verdict.promote, verdict.word) == (True, "promote")
    assert verdict.reasons == [
        "Model minus baseline, macro F1: +7.0 points [+3.0, +11.0], p 0.0010, 400 rows.",
        "Macro F1 90.0% [87.0, 93.0], calibration error 3.0%.",
    ]


@pytest.mark.parametrize(
    ("path", "value", "reason_part"),
    [
        ("counts.rows", 199, "the test has 199 rows, and 200"),
        ("systems.model.classes.无伤害.support", 9, "9 rows labelled 无伤害, and 10"),
        ("paired.model_vs_baseline.macro_f1.low", 0.0, "not shown"),
        ("paired.model_vs_baseline.macro_f1.p", 0.05, "not shown"),
        ("paired.model_vs_baseline.macro_f1", WORSE, "Worse than the baseline"),
        ("systems.model.classes.售前.f1.value", 0.77, "F1 of 售前 is 77.0%, the baseline's 83.0%"),
        ("systems.model.ece.value", 0.051, "calibration error is 5.1%"),
        ("systems.before.ece.value", 0.019, "temperature makes the calibration error worse, 1.9% to 3.0%"),
        ("paired.model_vs_baseline.macro_f1.low", None, "could not be measured"),
        ("systems.model.ece.value", "0.01", "is no number"),
        ("systems.model.classes", {}, "is not in the evaluation"),
        ("labels", [], "labels is no list"),
        ("labels", "售前", "labels is no list"),
        ("leaks", {}, "leaks.parts is not in the evaluation"),
        ("leaks.parts.train.alike", 2, "The test leaked: 0 of its rows are among those of train, and 2 nearly"),
        ("leaks.parts.dev.same", 1, "The test leaked: 1 of its rows are among those of dev"),
        ("leaks.parts.texts", {"rows": 9, "same": 0, "alike": 1}, "among those of texts, and 1 nearly"),
        ("leaks.parts.dev.rows", 0, "compared with no rows of dev"),
        ("leaks.parts", None, "leaks.parts.train.rows is not in the evaluation"),
        ("leaks.threshold", 0.9, "looked for from 0.9 on only; 0.8 is wanted"),
        ("digests", {}, "digests.parents is not in the evaluation"),
        ("digests.parents.train", "f" * 64, "learned from another train"),
    ],
)
def test_a_single_fault_holds_the_style_model(path: str, value: Any, reason_part: str) -> None:
    verdict = decide(changed(path, value), GATE)

    assert verdict.word == "hold"
    assert any(reason_part in reason for reason in verdict.reasons), verdict.reasons


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("systems.model.classes.售前.f1.value", 0.79),
        ("systems.before.ece.value", 0.021),
        ("counts.rows", 200),
        ("systems.model.classes.无伤害.support", 10),
    ],
)
def test_a_value_at_the_limit_is_promoted(path: str, value: Any) -> None:
    assert decide(changed(path, value), GATE).promote


@pytest.mark.parametrize("value", [None, "a" * 63, "x" * 64])
@pytest.mark.parametrize(
    "name",
    [
        "model", "predictions", "rows.train", "rows.dev", "rows.test", "parents.base_model", "parents.train",
        "parents.dev", "parents.labels",
    ],
)  # fmt: skip
def test_a_parent_that_nobody_can_name_holds(name: str, value: Any) -> None:
    verdict = decide(changed(f"digests.{name}", value), GATE)

    assert not verdict.promote
    assert any(f"digests.{name} is" in reason for reason in verdict.reasons), verdict.reasons


def test_a_distilled_model_comes_from_a_teacher() -> None:
    evaluation = good()
    parents = evaluation["digests"]["parents"]
    del parents["base_model"]

    assert not decide(evaluation, GATE).promote
    parents["teacher"] = "8" * 64
    assert not decide(evaluation, GATE).promote, "nobody has compared it with its teacher"
    evaluation["paired"]["model_vs_large"] = {"macro_f1": {"difference": 0.0, "low": -0.01, "high": 0.01, "p": 1.0}}
    assert decide(evaluation, GATE).promote


@pytest.mark.parametrize(("low", "word"), [(-0.019, "promote"), (-0.021, "hold"), (None, "hold")])
def test_a_distilled_model_may_surely_lose_its_teacher_no_more_than_the_margin(low: float | None, word: str) -> None:
    evaluation = good()
    evaluation["digests"]["parents"]["teacher"] = "8" * 64
    evaluation["paired"]["model_vs_large"] = {"macro_f1": {"difference": 0.01, "low": low, "high": 0.03, "p": 0.5}}

    verdict = decide(evaluation, GATE)

    assert verdict.word == word
    assert any("teacher" in reason or "model against large" in reason for reason in verdict.reasons)


def test_an_empty_evaluation_is_held() -> None:
    assert decide({}, GATE).word == "hold"
