"""Every system's probabilities for every test row: the model, the baseline, the teacher, and the models of folds."""

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
from qinglan.evaluation.gates.evaluation_file import read_evaluation, read_predictions
from qinglan.evaluation.gates.kinds import mapping_at
from qinglan.evaluation.statistics import Columns
from qinglan.files.digests import digest
from qinglan.style.labels import Labels
from qinglan.style.model import StyleCard, StyleModel
from qinglan.style.rows import CROSS_FITTED_FILE, CrossFitted, StyleRow, question_only_text
from qinglan.terminal.progress import progress

BATCHES = 8
"""Number of batches passed to the model at once, between two updates of the progress bar. Among these texts, those of
similar length share a batch."""


class SystemAnswers(NamedTuple):
    """Probabilities of each system for each row, in the rows' order."""

    probabilities: dict[str, Columns]
    called_for: Columns
    """The model's probabilities for each question without its answer."""

    baseline: Baseline


class TeacherFiles(NamedTuple):
    """Outputs of the teacher's evaluation that the evaluation of its student reads."""

    evaluation: Path
    predictions: Path


def ask_model(model: StyleModel, rows: Sequence[StyleRow], batch: int) -> tuple[Columns, Columns]:
    """Return the model's probabilities for each row's text, and for each question without its answer. Equal questions
    are predicted once."""
    alone = [question_only_text(row) for row in rows]
    at = {text: number for number, text in enumerate(dict.fromkeys(alone))}
    called_for = _predict(model, list(at), batch)[[at[text] for text in alone]]
    return _predict(model, [row.input for row in rows], batch), called_for


def _predict(model: StyleModel, texts: Sequence[str], batch: int) -> Columns:
    parts, step = [np.zeros((0, len(model.labels.labels)))], batch * BATCHES
    with progress("evaluate", len(texts)) as tick:
        for start in range(0, len(texts), step):
            parts.append(model.probabilities(texts[start : start + step], batch))
            for _ in texts[start : start + step]:
                tick()
    return np.concatenate(parts)


def read_cross_fitted(
    model: Path,
    rows: Sequence[StyleRow],
    dev: Sequence[StyleRow],
    folds: Mapping[str, int],
    labels: Sequence[str],
    choices: Sequence[float],
) -> SystemAnswers:
    """Read each row's answer by the model of its fold, and predict each fold with a baseline that was fitted on the
    other folds."""
    path = model / CROSS_FITTED_FILE
    if not path.is_file():
        raise DataError(f"{path}: no such file, and the rows are cross-fitted. Train again on these rows.")
    try:
        listed = TypeAdapter(list[CrossFitted]).validate_python(parse_json(path.read_bytes(), str(path)))
    except ValidationError as error:
        raise DataError(f"{path}: {explain_validation_error(error)}. Train again on these rows.") from error
    answers = {answer.id: answer for answer in listed}
    for row in rows:
        if row.id not in answers or answers[row.id].fold != folds[row.id]:
            raise DataError(f"{path}: row {row.id} was not judged by the model of its fold. Train again.")
    ordered = [answers[row.id] for row in rows]
    after = np.array([answer.probabilities for answer in ordered])
    baseline, fitted = np.zeros_like(after), []
    for number in sorted(set(folds.values())):
        judged = [index for index, row in enumerate(rows) if folds[row.id] == number]
        learned = [row for row in rows if folds[row.id] != number]
        # C is chosen on rows of dev outside of the fold. If there are none, it is chosen on the rows that the
        # baseline was fitted on.
        chosen = [row for row in dev if folds[row.id] != number] or learned
        fitted.append(fit_baseline(learned, chosen, [rows[index] for index in judged], labels, choices))
        baseline[judged] = fitted[-1].probabilities
    before = undo_temperature(after, np.array([[answer.temperature] for answer in ordered]))
    alone = np.array([answer.question_alone for answer in ordered])
    return SystemAnswers({MODEL: after, BEFORE: before, BASELINE: baseline}, alone, fitted[0])


def teacher_probabilities(files: TeacherFiles, card: StyleCard, test: Sequence[StyleRow], labels: Labels) -> Columns:
    """Return the teacher's probabilities for the test rows, read from the teacher's evaluation. Raises a DataError if
    that evaluation judged another model or other rows."""
    digests = mapping_at(read_evaluation(files.evaluation), "digests")
    if digests.get("model") != card.parents.get("teacher"):
        raise DataError(
            f"{files.evaluation}: is about model {str(digests.get('model'))[:12]}, and the student learned from "
            f"{card.parents.get('teacher', 'none')[:12]}. Evaluate its teacher, then the student."
        )
    if digests.get("predictions") != digest(files.predictions):
        raise DataError(
            f"{files.predictions}: not the predictions that {files.evaluation} was made of. Run evaluate again."
        )
    lines = list(read_predictions(files.predictions))
    if [line["id"] for line in lines] != [row.id for row in test]:
        raise DataError(f"{files.predictions}: of other test rows than those beside it. Run evaluate again.")
    return np.array([[line["model"]["probabilities"][name] for name in labels.names] for line in lines])
