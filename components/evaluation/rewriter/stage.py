"""Evaluate five systems on the same locked questions (no rewrite, history, teacher, SFT, RL), and write the gate's
verdict with the digests of all inputs.

The test is checked for leaks first. Every system's query goes through the same RAG service, which scores passages
against the row's fixed need. An examiner, which should be another model than the training's judge, scores a sample.
An outage is an error, never a score.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from components.evaluation.rewriter import leak, results
from components.evaluation.rewriter.blind_sheet import write_blind_sheet
from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.folds import NOTES, Fold, Trial, joined_outputs, learned_rows
from components.evaluation.rewriter.measures import JUDGED_METRICS, LABEL_METRICS, metrics_by
from components.evaluation.rewriter.report import build_report, curves, draw_examples
from components.evaluation.rewriter.score_systems import ScoredRows, fixed_queries, score_all, served_queries
from components.evaluation.rewriter.student_inference import rewrite_all
from components.evaluation.rewriter.student_timing import StudentOutput
from qinglan.errors import ConfigError, DataError
from qinglan.evaluation.gates.evaluation_file import Origins, Outputs, with_verdict, write_evaluation
from qinglan.evaluation.gates.leaks import joined_leaks
from qinglan.evaluation.gates.locked_test_uses import NOT_COUNTED, count_use
from qinglan.evaluation.gates.rewriter_gate import By, decide
from qinglan.evaluation.metric_table import MetricTable
from qinglan.evaluation.pages.report import write_report
from qinglan.evaluation.question_kinds import question_kinds, training_terms
from qinglan.evaluation.stage_gain import read_gains
from qinglan.files.digests import digest
from qinglan.files.files import read_jsonl
from qinglan.lineage.steps.record import code_version
from qinglan.llm.host_allowlist import check_called_hosts
from qinglan.rows.rows import ValidatedRewrite
from qinglan.text.near_duplicates import question_key

Slices = Mapping[str, Sequence[str]]
"""Names of each question's true properties, by question id."""


class EvaluateCounts(NamedTuple):
    rows: int
    conversations: int
    labelled: int
    examined: int
    training_rows: int
    """Rows of training and selection that the test was compared with."""

    judged_models: int
    """Models that this test has judged, including this one; 0 if the run has no store that counts them."""

    promote: int


FIGURES = {
    "promote": "promoted, 1 or 0",
    "rows": "tested rows",
    "judged_models": "models judged by this test",
    "plain_top1": "top-1 without rewriting, %",
    "teacher_top1": "top-1 of the teacher, %",
    "sft_top1": "top-1 after SFT, %",
    "rl_top1": "top-1 after PPO, %",
    "over_teacher_difference": "top-1 gain over teacher, points",
    "over_teacher_low": "top-1 gain over teacher at least, points",
    "over_teacher_high": "top-1 gain over teacher at most, points",
    "over_teacher_p": "p of the gain over teacher",
}
"""Words for the figures on KFP's page, by field or headline number. Top-1 is the share of queries that find the gold
passage first; `at least` and `at most` mean the ends of the 95 % interval."""


def evaluate(
    locked_test: Path,
    models: Mapping[str, Path],
    training: Mapping[str, Path],
    logs: Mapping[str, Path],
    out: Outputs,
    config: EvaluateConfig,
    gateway_url: str,
    folds: Sequence[Fold] = (),
) -> EvaluateCounts:
    """Compare all systems, and write all outputs. `models` holds `sft` and, if it was trained, `rl`.

    With `folds`, each fold's rows are rewritten by the fold's own models, which are siblings of `models`. All rows
    are compared as one test.
    """
    check_called_hosts(config, "evaluate")
    if "sft" not in models or set(models) - {"sft", "rl"}:
        raise ConfigError(f"models: {', '.join(models) or 'none'} given; sft is needed, rl may be there.")
    training = learned_rows(models["sft"], training)
    trials = [fold.trial for fold in folds] or [Trial(locked_test, models, training)]
    if folds:  # the servers of `rewriter_urls` serve none of the siblings
        share = max(1, round(config.latency_rows / len(folds)))
        config = config.model_copy(update={"rewriter_urls": {}, "latency_rows": share})
    tests = [[row for _, row in read_jsonl(trial.test, ValidatedRewrite)] for trial in trials]
    if empty := [trial.test for trial, test in zip(trials, tests, strict=True) if not test]:
        raise DataError(f"{empty[0]}: no rows. Give the sheet more conversations, or a larger test share.")
    leaks = joined_leaks(
        [leak.check(rows, trial.training, config.gate.alike) for rows, trial in zip(tests, trials, strict=True)]
    )
    origins = _origins(Trial(locked_test, models, training))
    if folds:
        del origins["test"]  # no test was locked away; each fold has its own test
    traced = {str(fold.number): _origins(fold.trial) for fold in folds}
    slices = read_slices(config.slices) if config.slices else {}
    rows = [row for test in tests for row in test]
    students = joined_outputs(
        [rewrite_all(trial.models, test, config) for test, trial in zip(tests, trials, strict=True)]
    )
    served = {name: served_queries(rows, student.texts, config.as_asked) for name, student in students.items()}
    texts = {**fixed_queries(rows), **served}
    scored = score_all(rows, texts, slices, out.predictions, config, gateway_url, by=config.gate.by)
    digests = {"predictions": digest(out.predictions), "knowledge_bases": scored.snapshots, **origins}
    digests |= ({"folds": traced} if folds else {}) | {"code": code_version()}
    kinds = []
    for test, trial in zip(tests, trials, strict=True):
        known = training_terms(leak.questions(trial.training))
        kinds += [question_kinds(row, known) for row in test]
    # The test is identified by its questions, so that other rewrites by the teacher do not make it a new test.
    question_ids = (f"{row.tenant_id}|{question_key(row.question, row.history_summary)}" for row in rows)
    uses = count_use(question_ids, "rewriter", origins["models"].get("rl", origins["models"]["sft"]))
    evaluation = build_evaluation(
        rows, kinds, slices, students, scored, Origins(leaks, digests), config, len(folds), uses
    )
    evaluation = write_evaluation(out.evaluation, evaluation)
    write_blind_sheet(out.predictions, out.blind_sample, out.blind_key, config.blind_rows, config.seed)
    examples = draw_examples(out.predictions, evaluation["candidate"], config.examples)
    write_report(build_report(evaluation, examples, curves(logs), read_gains(logs)), out.report)
    return EvaluateCounts(**{name: evaluation["counts"][name] for name in EvaluateCounts._fields})


def _origins(trial: Trial) -> dict[str, Any]:
    """Return the digests of a test, of its models, and of everything that the models were made from."""
    models = {name: digest(folder) for name, folder in trial.models.items()}
    return {
        "test": digest(trial.test),
        "models": models,
        "parents": leak.check_parents(trial.models, models, trial.training),
        "training": {name: digest(folder) for name, folder in trial.training.items()},
    }


def build_evaluation(
    rows: Sequence[ValidatedRewrite],
    kinds: Sequence[Sequence[str]],
    slices: Slices,
    students: Mapping[str, StudentOutput],
    scored: ScoredRows,
    origins: Origins,
    config: EvaluateConfig,
    folds: int = 0,
    uses: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the content of evaluation.json, with the gate's verdict.

    `folds` is the number of folds; it is 0 if a test is locked away. `uses` is the result of `count_use`, which
    counts the models that the test has judged.
    """
    by: By = "labels" if results.judged_rows(scored) else "gold"
    beside = JUDGED_METRICS if by == "labels" else LABEL_METRICS if results.by_labels(scored) else {}
    metrics = metrics_by(by) | beside
    table = MetricTable.of(rows, scored.values, metrics, config.draws, config.seed)
    candidate = "rl" if "rl" in students else "sft"
    systems = table.levels()
    systems["teacher"].update(results.teacher_metrics(scored.report, scored.teacher_seconds, config))
    for name, student in students.items():
        systems[name].update(results.student_metrics(student, config))
    agreement = results.judge_agreement(scored, scored.report.get("models", {}))
    evaluation: dict[str, Any] = {
        "candidate": candidate,
        **({"cross_fitted": {"folds": folds}} if folds else {}),
        "systems": systems,
        "paired": results.paired_results(table, [row.tenant_id for row in rows]),
        "kinds": results.kind_results(table, candidate, [row.tenant_id for row in rows], kinds),
        "slices": results.slice_results(table, [slices.get(row.id, ()) for row in rows]),
        "agreement": agreement,
        "inflation": results.inflation_results(table, scored.judge, agreement["same_model"]),
        "power": results.power(table, candidate, config.interesting),
        "expected": results.EXPECTED,
        "currency": scored.report.get("models", {}).get("teacher", {}).get("currency", ""),
        "settings": config.model_dump(mode="json"),
        "notes": [
            *(NOTES if folds else ()),
            results.as_asked_note(rows, config.as_asked),
            *results.notes(students, scored, table, config),
            *(() if uses else (NOT_COUNTED,)),
        ],
        "counts": {
            "rows": table.rows,
            "conversations": table.conversation_count,
            "labelled": sum(bool(row.gold) for row in rows),
            "judged": results.judged_rows(scored),
            "examined": systems["teacher"]["quality"]["n"],
            "training_rows": origins.training_rows,
            "judged_models": uses["count"] if uses else 0,
        },
        "test_uses": uses,
        **origins._asdict(),
    }
    return with_verdict(evaluation, lambda reread: decide(reread, config.gate))


class Slice(BaseModel):
    """A question's id; all other fields are the question's true-or-false properties."""

    model_config = ConfigDict(extra="allow")
    id: str


def read_slices(path: Path) -> dict[str, list[str]]:
    """Return the names of each question's true properties, by question id. `documented` is added if `gap` and
    `self_contained` are both false."""
    slices = {}
    for _, row in read_jsonl(path, Slice):
        properties = row.model_extra or {}
        slices[row.id] = [name for name, value in properties.items() if value is True]
        if properties.get("gap") is False and properties.get("self_contained") is False:
            slices[row.id].append("documented")
    return slices


def headline_numbers(evaluation: Mapping[str, Any]) -> dict[str, float | None]:
    numbers = {f"{name}_top1": levels["top1"]["value"] for name, levels in evaluation["systems"].items()}
    versus = evaluation["paired"][f"{evaluation['candidate']}_vs_teacher"]
    return numbers | {f"over_teacher_{name}": versus[name] for name in ("difference", "low", "high", "p")}
