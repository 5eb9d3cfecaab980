"""The baseline learns from train alone."""

import numpy as np
import pytest

from components.evaluation.style.baseline import fit_baseline
from qinglan.errors import DataError
from qinglan.style.rows import StyleRow
from tests.components.evaluation.style.sample_predictions import NAMES, sample_rows


def rows(*pairs: tuple[str, str]) -> list[StyleRow]:
    return [StyleRow(id=str(at), input=text, label=label) for at, (text, label) in enumerate(pairs)]


@pytest.mark.slow
def test_the_baseline_learns_from_train_and_dev_only_chooses_its_strength() -> None:
    sample = sample_rows(200)
    train, dev, test = sample[:140], sample[140:170], sample[170:]

    baseline = fit_baseline(train, dev, test, NAMES, (1.0, 3.0))
    other = fit_baseline(train, dev[:5], test[::-1], NAMES, (baseline.c,))

    assert np.allclose(baseline.probabilities, other.probabilities[::-1])
    assert baseline.dev_macro_f1[f"{baseline.c:g}"] == max(baseline.dev_macro_f1.values())
    assert np.allclose(baseline.probabilities.sum(axis=1), 1)
    right = [NAMES[best] == row.label for best, row in zip(baseline.probabilities.argmax(axis=1), test, strict=True)]
    assert np.mean(right) > 0.4


def test_a_label_that_train_lacks_is_never_said() -> None:
    train = rows(("推荐购买", "售前"), ("退货退款", "售后"))

    result = fit_baseline(train, train, train, NAMES, (3.0,))

    assert result.probabilities[:, 2:].max() == 0
    assert result.probabilities.argmax(axis=1).tolist() == [0, 1]


def test_rows_of_one_label_teach_nothing() -> None:
    with pytest.raises(DataError, match="same label"):
        fit_baseline(rows(("推荐", "售前")), [], [], NAMES, (3.0,))
