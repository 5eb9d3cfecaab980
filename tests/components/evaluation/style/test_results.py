"""evaluation.json: intervals hold their values, comparisons are on the same rows, alike rows are no more evidence."""

from typing import Any

import numpy as np
import pytest

from components.evaluation.style import results
from components.evaluation.style.measures import MEASURES
from components.evaluation.style.results import PredictionTable
from qinglan.evaluation.gates.kinds import kind_of
from tests.components.evaluation.style.sample_predictions import CONFIG, NAMES, evaluation, table


@pytest.fixture(scope="module")
def value() -> dict[str, Any]:
    return evaluation(table())


def test_every_measure_lies_in_its_interval(value: dict[str, Any]) -> None:
    for name in (results.MODEL, results.BEFORE, results.BASELINE):
        for measure in MEASURES:
            level = value["systems"][name][measure]
            assert level["low"] <= level["value"] <= level["high"], (name, measure)
        assert sum(map(sum, value["systems"][name]["confusion"])) == 300
        assert sum(part["n"] for part in value["systems"][name]["bins"]) == 300


def test_a_difference_is_that_of_the_values_and_a_real_one_is_shown(value: dict[str, Any]) -> None:
    pair = value["paired"]["model_vs_baseline"]
    model, baseline = (value["systems"][name]["macro_f1"]["value"] for name in ("model", "baseline"))

    assert pair["macro_f1"]["difference"] == pytest.approx(model - baseline)
    assert 0 < pair["macro_f1"]["low"] < pair["macro_f1"]["high"]
    assert pair["macro_f1"]["p"] < 0.01 and pair["accuracy"]["p"] < 0.01
    assert pair["wins"] - pair["losses"] == pytest.approx(300 * pair["accuracy"]["difference"])
    assert set(pair["f1"]) == set(NAMES)
    assert value["verdict"]["word"] == "promote"


def test_the_temperature_changes_no_answer(value: dict[str, Any]) -> None:
    pair = value["paired"]["model_vs_before"]

    assert pair["accuracy"]["difference"] == pair["macro_f1"]["difference"] == 0
    assert pair["ece"]["difference"] < 0


@pytest.mark.slow
def test_a_student_is_compared_with_its_teacher_on_the_same_rows() -> None:
    answers = table()
    swapped = {**answers.probabilities, "large": answers.probabilities["baseline"]}

    taught = evaluation(answers._replace(probabilities=swapped))

    pairs = taught["paired"]
    assert pairs["model_vs_large"] == pairs["model_vs_baseline"]
    assert taught["systems"]["large"]["macro_f1"] == taught["systems"]["baseline"]["macro_f1"]
    assert "model_vs_large" not in evaluation(answers)["paired"]
    assert kind_of(taught, "evaluation.json").name == "style", "a release is registered by it"


def test_rows_that_stand_there_four_times_are_no_more_evidence() -> None:
    answers = table(100)
    probabilities = {name: column.repeat(4, axis=0) for name, column in answers.probabilities.items()}
    fourfold = PredictionTable(NAMES, answers.truth.repeat(4), np.arange(400), probabilities)

    def width(compared: PredictionTable) -> float:
        accuracy = results.systems(compared, CONFIG)["model"]["accuracy"]
        return float(accuracy["high"] - accuracy["low"])

    assert width(fourfold) < 0.6 * width(answers)
    assert width(fourfold._replace(alike=answers.alike.repeat(4))) == pytest.approx(width(answers))


def test_a_row_is_flagged_when_protection_is_called_for_and_not_given() -> None:
    # Five rows, one a label; the third and the last call for protection, only the last gives it.
    probabilities = np.full((5, 5), 0.05)
    probabilities[np.arange(5), np.arange(5)] = 0.8
    answers = PredictionTable(NAMES, np.arange(5), np.arange(5), {"model": probabilities})

    value = results.content_check(answers, 4, np.array([0.1, 0.2, 0.9, 0.3, 0.5]), CONFIG)

    assert value["flagged"]["value"] == pytest.approx(1 / 5)
    assert {name: share["value"] for name, share in value["flagged_of"].items()} == {
        name: float(name == "诚实") for name in NAMES
    }
    assert value["calls"] == pytest.approx(2 / 5)
