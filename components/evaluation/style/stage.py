"""Evaluate a style model and its baseline on the locked test, and write the gate's verdict with the digests of all
inputs.

The test is checked for leaks first; then the model predicts every row once. Nothing is chosen on the test.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from components.evaluation.style import leak, results
from components.evaluation.style.baseline import Baseline, fit_baseline
from components.evaluation.style.blind_sheet import write_blind_sheet
from components.evaluation.style.config import EvaluateStyleConfig
from components.evaluation.style.measures import BINS, undo_temperature
from components.evaluation.style.probabilities import (
    SystemAnswers,
    TeacherFiles,
    ask_model,
    read_cross_fitted,
    teacher_probabilities,
)
from components.evaluation.style.report import build_report, draw_examples
from components.evaluation.style.results import BASELINE, BEFORE, LARGE, MODEL, PredictionTable
from qinglan.errors import DataError
from qinglan.evaluation.gates.evaluation_file import Origins, Outputs, with_verdict, write_evaluation
from qinglan.evaluation.gates.locked_test_uses import NOT_COUNTED, count_use
from qinglan.evaluation.gates.style_gate import decide
from qinglan.evaluation.pages.report import write_report
from qinglan.evaluation.statistics import Columns, group_numbers
from qinglan.files.digests import digest
from qinglan.files.files import atomic_write, sha256_file
from qinglan.lineage.steps.record import code_version
from qinglan.models.safetensors_header import count_parameters
from qinglan.style.labels import Labels, read_mapping
from qinglan.style.model import EngineName, StyleCard, StyleModel, read_card
from qinglan.style.rows import FOLDS_FILE, SPLITS, StyleRow, read_folds, read_split, refuse_folds
from qinglan.text.near_duplicates import comparable, group_near_duplicates

HARMLESS = "harmless"
CROSS_FITTED_NOTES = (
    "Cross-fitted: no test was locked away. The rows lie in folds, alike ones in the same; each was judged by a "
    "model that was trained on the other folds, as the released one was on all rows but dev. The figures are of "
    "those models, which learned from fewer rows than the released one.",
    "Intervals take rows as independent of each other; models of different folds share most of their rows, so the "
    "true ones are somewhat wider. The baseline's C, named below, is the first fold's; each fold chose its own.",
)
MADE_UP = 10_000_000
"""Number of parameters below which a base model counts as made for a demo on this machine; public models are
larger."""


class EvaluateStyleCounts(NamedTuple):
    rows: int
    groups: int
    """Groups of near-duplicates among the tested rows."""

    training_rows: int
    """Rows of train and dev, and unlabelled texts, that the test was compared with."""

    judged_models: int
    """Models that this test has judged, including this one; 0 if the run has no store that counts them."""

    promote: int


FIGURES = {
    "promote": "promoted, 1 or 0",
    "rows": "tested rows",
    "judged_models": "models judged by this test",
    "model_accuracy": "accuracy, %",
    "baseline_accuracy": "accuracy of the baseline, %",
    "model_macro_f1": "macro F1, %",
    "baseline_macro_f1": "macro F1 of the baseline, %",
    "over_baseline_difference": "macro F1 gain over baseline, points",
    "over_baseline_low": "macro F1 gain over baseline at least, points",
    "model_ece": "calibration error, points",
}
"""Words for the figures on KFP's page, by field or headline number. `at least` means the lower end of the 95 %
interval."""


class Splits(NamedTuple):
    """The rows of all three splits, and their labels."""

    train: list[StyleRow]
    dev: list[StyleRow]
    test: list[StyleRow]
    labels: Labels
    folds: dict[str, int]
    """Fold of each row, by row id; empty with a locked test. With folds, `test` holds the rows of train and dev."""


def evaluate(
    rows: Path, model: Path, out: Outputs, config: EvaluateStyleConfig, teacher: TeacherFiles | None = None
) -> EvaluateStyleCounts:
    """Judge the model on the test in `rows`, and write all outputs.

    If `teacher` is given, the model is a distilled one. Its int8 form, which is served, is judged, and compared with
    the teacher's answers to the same rows.
    """
    splits = read_splits(rows)
    if teacher:
        refuse_folds(rows)
    if splits.folds:
        parts = {"train": splits.train, "dev": splits.dev}
        leaks = leak.check_folds(splits.test, splits.folds, parts, config.gate.alike)
    else:
        leaks = leak.check(splits.test, rows, config.gate.alike)
    card = read_card(model)
    leak.check_parents(card, model, rows)
    answers = _ask_systems(model, splits, card, config, "onnx" if teacher else "torch")
    if teacher:
        answers.probabilities[LARGE] = teacher_probabilities(teacher, card, splits.test, splits.labels)
    keys = [comparable(row.input) for row in splits.test]
    truth = np.array([splits.labels.ids[row.label] for row in splits.test])
    alike = group_numbers(group_near_duplicates(keys, config.alike))
    table = PredictionTable(splits.labels.names, truth, alike, answers.probabilities)
    predictions = prediction_rows(splits.test, table, answers.called_for)
    with atomic_write(out.predictions) as partial:
        partial.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in predictions))
    digests = {
        "rows": {name: sha256_file(rows / f"{name}.jsonl") for name in SPLITS},
        "model": digest(model),
        **({"folds": sha256_file(rows / FOLDS_FILE)} if splits.folds else {}),
        "parents": card.parents,
        "predictions": digest(out.predictions),
        "code": code_version(),
    }
    origins, folds = Origins(leaks, digests), len(set(splits.folds.values()))
    uses = count_use(keys, "style-small" if teacher else "style", str(digests["model"]))
    evaluation = build_evaluation(
        table, answers.called_for, answers.baseline, card, origins, splits.labels, config, folds, uses
    )
    evaluation["notes"].append(model_note(model, bool(teacher)))
    evaluation = write_evaluation(out.evaluation, evaluation)
    write_blind_sheet(splits.test, predictions, out.blind_sample, out.blind_key, config.blind_rows, config.seed)
    examples = draw_examples(splits.test, predictions, config.examples)
    write_report(build_report(evaluation, examples), out.report)
    return EvaluateStyleCounts(**evaluation["counts"])


def read_splits(rows: Path) -> Splits:
    """Read the splits; an empty split is a DataError. With folds, `test` holds the rows of train and dev."""
    read = {name: read_split(rows, name) for name in SPLITS}
    if folds := read_folds(rows):
        (train, labels), (dev, _) = read["train"], read["dev"]
        return Splits(train, dev, [*train, *dev], labels, folds)
    if empty := [name for name, (split, _) in read.items() if not split]:
        raise DataError(f"{rows / empty[0]}.jsonl: no rows. Prepare the data with more rows, or larger shares.")
    return Splits(read["train"][0], read["dev"][0], read["test"][0], read["test"][1], {})


def _ask_systems(
    folder: Path, splits: Splits, card: StyleCard, config: EvaluateStyleConfig, engine: EngineName
) -> SystemAnswers:
    labels, names = read_mapping(folder), splits.labels.names
    if labels.names != names:  # the order must be the same too, since predictions are label numbers
        raise DataError(
            f"{folder}: the model's labels are {', '.join(labels.names)}, those of the rows {', '.join(names)}. "
            "Evaluate with the rows it was trained on, or train it again."
        )
    if splits.folds:
        return read_cross_fitted(folder, splits.test, splits.dev, splits.folds, names, config.baseline_c)
    after, called_for = ask_model(StyleModel.load(folder, engine), splits.test, config.batch)
    baseline = fit_baseline(splits.train, splits.dev, splits.test, names, config.baseline_c)
    before = undo_temperature(after, card.temperature)
    return SystemAnswers({MODEL: after, BEFORE: before, BASELINE: baseline.probabilities}, called_for, baseline)


def prediction_rows(test: Sequence[StyleRow], table: PredictionTable, called_for: Columns) -> list[dict[str, Any]]:
    """Return the lines of predictions.jsonl, one for each test row, with the values behind the report's numbers."""

    def by_label(probabilities: Columns) -> dict[str, float]:
        return dict(zip(table.labels, probabilities.tolist(), strict=True))

    lines = []
    for at, row in enumerate(test):
        line: dict[str, Any] = {"id": row.id, "label": row.label, "alike": int(table.alike[at])}
        for name in (MODEL, BASELINE):
            probabilities = table.probabilities[name][at]
            best = int(probabilities.argmax())
            answer = {"predicted": table.labels[best], "confidence": float(probabilities[best])}
            line[name] = {**answer, "probabilities": by_label(probabilities)}
        lines.append(line | {"question_alone": by_label(called_for[at])})
    return lines


def build_evaluation(
    table: PredictionTable,
    called_for: Columns,
    baseline: Baseline,
    card: StyleCard,
    origins: Origins,
    labels: Labels,
    config: EvaluateStyleConfig,
    folds: int = 0,
    uses: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the content of evaluation.json, with the gate's verdict.

    `folds` is the number of folds; it is 0 if a test is locked away. `uses` is the result of `count_use`, which
    counts the models that the test has judged.
    """
    harmless = next((label.id for label in labels.labels if label.english == HARMLESS), None)
    check = None if harmless is None else results.content_check(table, harmless, called_for[:, harmless], config)
    evaluation: dict[str, Any] = {
        "labels": list(table.labels),
        "english": {label.name: label.english for label in labels.labels},
        "counts": {
            "rows": len(table.truth),
            "groups": table.size,
            "training_rows": origins.training_rows,
            "judged_models": uses["count"] if uses else 0,
        },
        "test_uses": uses,
        "systems": results.systems(table, config),
        "paired": results.paired_results(table, config),
        "calibration": {"temperature": card.temperature},
        "content_check": check,
        "baseline": {"c": baseline.c, "dev_macro_f1": baseline.dev_macro_f1},
        "settings": config.model_dump(mode="json"),
        **({"cross_fitted": {"folds": folds}} if folds else {}),
        "notes": [
            *(CROSS_FITTED_NOTES if folds else ()),
            *notes(table, baseline, card, config),
            *(() if uses else (NOT_COUNTED,)),
        ],
        **origins._asdict(),
    }
    return with_verdict(evaluation, lambda reread: decide(reread, config.gate))


def notes(table: PredictionTable, baseline: Baseline, card: StyleCard, config: EvaluateStyleConfig) -> list[str]:
    tried = ", ".join(f"{c}: {score:.3f}" for c, score in baseline.dev_macro_f1.items())
    return [
        "The baseline: TF-IDF of character 1- to 3-grams and logistic regression, fitted on the rows of train alone; "
        f"C {baseline.c:g} was chosen by macro F1 on dev ({tried}).",
        f"Test rows that share {config.alike:.0%} of their three-character pieces with another are drawn together: "
        f"{len(table.truth)} rows are {table.size} groups.",
        f"Intervals: {config.draws:,} bootstrap draws of whole groups. p: model and baseline exchanged within whole "
        f"groups, {config.draws:,} times. Seed {config.seed}.",
        f"Calibration error: {BINS} bins of equal width. Drawn rows have a larger one than the rows they "
        "come from, so its interval is mirrored at the value.",
        f"The model ({card.stage}) reads {card.max_length} tokens of a text. Macro F1 is the mean over labels that "
        "are there or said.",
    ]


def model_note(folder: Path, int8: bool) -> str:
    """Return a sentence with the model's type, size and form, and a warning if it is as small as a demo's model."""
    described, parameters = orjson.loads((folder / "config.json").read_bytes()), count_parameters(folder)
    form = "its int8 graph is judged, which `--engine onnx` serves" if int8 else "its weights are judged"
    note = f"The model: {described['model_type']}, {parameters:,} parameters; {form}."
    if parameters < MADE_UP:
        note += (
            " A model this small was made for a demo, from the run's own texts: its figures show that the line "
            "works, and say nothing of a base that knows language."
        )
    return note


def headline_numbers(evaluation: Mapping[str, Any]) -> dict[str, float | None]:
    systems, gap = evaluation["systems"], evaluation["paired"]["model_vs_baseline"]["macro_f1"]
    numbers = {
        f"{name}_{measure}": systems[name][measure]["value"]
        for name in (MODEL, BASELINE)
        for measure in ("accuracy", "macro_f1", "ece")
    }
    return numbers | {f"over_baseline_{name}": gap[name] for name in ("difference", "low", "high")}
