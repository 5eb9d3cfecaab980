"""Cross-fitted answers as the evaluation reads them: every row is judged by a model that did not learn from it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from components.evaluation.style.baseline import Baseline, fit_baseline
from components.evaluation.style.measures import undo_temperature
from components.evaluation.style.results import BASELINE, BEFORE, MODEL
from qinglan.config import explain_validation_error
from qinglan.documents import parse_json
from qinglan.errors import DataError
from qinglan.evaluation.statistics import Columns
from qinglan.style.rows import CROSS_FITTED_FILE, CrossFitted, StyleRow


class FoldAnswers(NamedTuple):
    """Probabilities of each system for each row, in the rows' order."""

    probabilities: dict[str, Columns]
    called_for: Columns
    """The model's, of the question alone."""

    baseline: Baseline


def read_answers(
    model: Path, rows: Sequence[StyleRow], dev: Sequence[StyleRow], folds: Mapping[str, int], labels: Sequence[str],
    choices: Sequence[float],
) -> FoldAnswers:  # fmt: skip
    """The answers of the models of all folds, and a baseline fitted for each fold on the rows of the others."""
    path = model / CROSS_FITTED_FILE
    if not path.is_file():
        raise DataError(f"{path}: no such file, and the rows are cross-fitted. Train again on these rows.")
    try:
        listed = TypeAdapter(list[CrossFitted]).validate_python(parse_json(path.read_bytes(), str(path)))
    except ValidationError as error:
        raise DataError(f"{path}: {explain_validation_error(error)}. Train again on these rows.") from error
    answers = {answer.id: answer for answer in listed}
    if strange := [row.id for row in rows if row.id not in answers or answers[row.id].fold != folds[row.id]]:
        raise DataError(f"{path}: row {strange[0]} was not judged by the model of its fold. Train again.")
    ordered = [answers[row.id] for row in rows]
    if odd := [answer.id for answer in ordered if len(answer.probabilities) != len(labels)]:
        raise DataError(f"{path}: row {odd[0]} has not a probability for each of {len(labels)} labels. Train again.")
    after = np.array([answer.probabilities for answer in ordered])
    temperatures = np.array([[answer.temperature] for answer in ordered])
    baseline, fitted = np.zeros_like(after), []
    for number in sorted(set(folds.values())):
        judged = [index for index, row in enumerate(rows) if folds[row.id] == number]
        learned = [row for row in rows if folds[row.id] != number]
        chosen = [row for row in dev if folds[row.id] != number] or learned
        fitted.append(fit_baseline(learned, chosen, [rows[index] for index in judged], labels, choices))
        baseline[judged] = fitted[-1].probabilities
    before = undo_temperature(after, temperatures)
    alone = np.array([answer.question_alone for answer in ordered])
    return FoldAnswers({MODEL: after, BEFORE: before, BASELINE: baseline}, alone, fitted[0])
