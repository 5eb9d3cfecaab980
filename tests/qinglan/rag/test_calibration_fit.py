"""A calibration is fitted only to scores that are higher for passages that answer."""

import pytest

from qinglan.errors import DataError
from qinglan.rag.calibration_fit import fit_calibration


def test_a_fitted_calibration_of_logits_can_be_inverted() -> None:
    raw = (-4.0, -3.0, -1.0, 0.5, 2.0, 3.0)

    calibration = fit_calibration(raw, [score > 1 for score in raw], "logit", "rows")

    assert calibration.probability(-4) < 0.5 < calibration.probability(3)
    assert calibration.probability(-1e9) < calibration.probability(1e9)
    assert calibration.raw(calibration.probability(1.5)) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("raw", "answers"),
    [
        ([0.1, 0.2, 0.8, 0.9], [True, True, False, False]),
        ([0.0, 0.1], [True, True]),
        ([0.0, 0.1], [False, False]),
        ([0.5, 0.5], [True, False]),
    ],
)
def test_backward_ranks_and_equal_labels_or_scores_are_refused(raw: list[float], answers: list[bool]) -> None:
    with pytest.raises(DataError):
        fit_calibration(raw, answers, "probability", "rows")
