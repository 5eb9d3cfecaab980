"""No rewrite, history, teacher, SFT and RL on the same locked questions, and a verdict that can be traced.

The test is checked for leaks first. Every system's query goes through the same RAG, scored against the row's fixed
need; an examiner of another family than the training's judge scores a sample. An outage is an error, never a score.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict

from components.evaluation.rewriter import leak, results
from components.evaluation.rewriter.blind_sheet import write_blind_sheet
from components.evaluation.rewriter.config import EvaluateConfig, GateConfig
from components.evaluation.rewriter.gate import decide
from components.evaluation.rewriter.report import write_report
from components.evaluation.rewriter.score_systems import ScoredRows, fixed_queries, score_all
from components.evaluation.rewriter.student_inference import StudentOutput, rewrite_all
from qinglan.digests import digest
from qinglan.errors import ConfigError, DataError
from qinglan.files import atomic_write, read_jsonl
from qinglan.lineage.code import code_version
from qinglan.rows import ValidatedRewrite
from qinglan.verdict import Verdict, read_evaluation

SHOWN = ("top1", "ndcg", "recall", "quality")


class Outputs(NamedTuple):
    """Where everything goes."""

    evaluation: Path
    report: Path
    predictions: Path
    blind_sample: Path
    blind_key: Path


class EvaluateCounts(NamedTuple):
    rows: int
    conversations: int
    labelled: int
    examined: int
    training_rows: int
    """Rows of training and selection that the test was compared with."""

    promote: int


class Origins(NamedTuple):
    """Where everything that was judged came from."""

    leaks: Mapping[str, Any]
    digests: Mapping[str, Any]


def evaluate(
    locked_test: Path,
    models: Mapping[str, Path],
    training: Mapping[str, Path],
    logs: Mapping[str, Path],
    out: Outputs,
    config: EvaluateConfig,
    gateway_url: str,
) -> EvaluateCounts:
    """Compare all systems; `models` holds sft and, where there is one, rl. Writes every output, or none of use."""
    _refuse_strangers(models)
    rows = [row for _, row in read_jsonl(locked_test, ValidatedRewrite)]
    if not rows:
        raise DataError(f"{locked_test}: no rows. Give the sheet more conversations, or a larger test share.")
    leaks = leak.check(rows, training, config.gate.alike)
    made = {name: digest(folder) for name, folder in models.items()}
    parents = leak.check_parents(models, made, training)
    slices = read_slices(config.slices) if config.slices else {}
    writings = rewrite_all(models, rows, config)
    texts = {**fixed_queries(rows), **{name: one.texts for name, one in writings.items()}}
    asking = score_all(rows, texts, slices, out.predictions, config, gateway_url)
    table = results.MetricTable.of(rows, asking, slices)
    digests = {
        "test": digest(locked_test), "predictions": digest(out.predictions), "knowledge_bases": asking.snapshots,
        "models": made, "parents": parents,
        "training": {name: digest(folder) for name, folder in training.items()}, "code": code_version(),
    }  # fmt: skip
    evaluation = build_evaluation(table, writings, asking, Origins(leaks, digests), config)
    _write_json(out.evaluation, evaluation)
    write_blind_sheet(out.predictions, out.blind_sample, out.blind_key, config.blind_rows, config.seed)
    write_report(orjson.loads(out.evaluation.read_bytes()), out.predictions, logs, out.report, config.examples)
    return EvaluateCounts(**{name: evaluation["counts"][name] for name in EvaluateCounts._fields})


def build_evaluation(
    table: results.MetricTable,
    writings: Mapping[str, StudentOutput],
    asking: ScoredRows,
    origins: Origins,
    config: EvaluateConfig,
) -> dict[str, Any]:
    """evaluation.json; the gate's verdict is part of it."""
    candidate = "rl" if "rl" in writings else "sft"
    systems = results.system_metrics(table, config)
    systems["teacher"].update(results.teacher_metrics(asking.report))
    for name, writing in writings.items():
        systems[name].update(results.student_metrics(writing, config))
    models = asking.report.get("models", {})
    evaluation: dict[str, Any] = {
        "candidate": candidate,
        "systems": systems,
        "paired": results.paired_results(table, config),
        "slices": results.slice_results(table, config),
        "agreement": results.judge_agreement(asking, models),
        "power": results.power(table, candidate, config),
        "expected": results.EXPECTED,
        "currency": models.get("teacher", {}).get("currency", ""),
        "settings": config.model_dump(mode="json"),
        "notes": results.notes(writings, asking, table, config),
        "counts": _counts(table, systems, origins.leaks),
        **origins._asdict(),
    }
    # As a reader of the file would decide: what JSON cannot hold is missing there too.
    verdict = decide(orjson.loads(orjson.dumps(evaluation)), config.gate)
    evaluation["counts"]["promote"] = int(verdict.promote)
    return {**evaluation, "verdict": verdict._asdict()}


def _counts(table: results.MetricTable, systems: Mapping[str, Any], leaks: Mapping[str, Any]) -> dict[str, int]:
    top1, quality = (systems["teacher"][name]["n"] for name in ("top1", "quality"))
    return {
        "rows": len(table.tenant_of), "conversations": int(table.conversations.max()) + 1, "labelled": top1,
        "examined": quality, "training_rows": sum(part["rows"] for part in leaks["parts"].values()),
    }  # fmt: skip


def gate(evaluation: Path, config: GateConfig) -> Verdict:
    """The verdict on a written evaluation."""
    return decide(read_evaluation(evaluation), config)


class Slice(BaseModel):
    """A question's id, and beside it what holds for it."""

    model_config = ConfigDict(extra="allow")
    id: str


def read_slices(path: Path) -> dict[str, list[str]]:
    """The names of what holds for each question; `documented` where the house wrote down the user's words."""
    return {row.id: _names(row.model_extra or {}) for _, row in read_jsonl(path, Slice)}


def _names(holds: Mapping[str, Any]) -> list[str]:
    documented = holds.get("gap") is False and holds.get("self_contained") is False
    return [*(name for name, value in holds.items() if value is True), *(["documented"] if documented else [])]


def _refuse_strangers(models: Mapping[str, Path]) -> None:
    if "sft" not in models or set(models) - {"sft", "rl"}:
        raise ConfigError(f"models: {', '.join(models) or 'none'} given; sft is needed, rl may be there.")


def _write_json(path: Path, value: Any) -> None:
    with atomic_write(path) as partial:
        partial.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2))


def headline_numbers(evaluation: Mapping[str, Any]) -> dict[str, float]:
    """What a run's page shows of an evaluation."""
    systems = evaluation["systems"]
    numbers = {f"{name}_{metric}": found[metric]["value"] for name, found in systems.items() for metric in SHOWN}
    versus = evaluation["paired"][f"{evaluation['candidate']}_vs_teacher"]
    numbers |= {f"over_teacher_{name}": versus[name] for name in ("difference", "low", "high", "p")}
    return {name: value for name, value in numbers.items() if value is not None}
