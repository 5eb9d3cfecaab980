"""`qinglan compare-teachers`: each candidate writes for the same rows, one after the other, and the RAG tells.

DIR/
  comparison.json  comparison.html   what came of it
  predictions.jsonl                  each row: every teacher's query, what it found, every number
  rewrites/<teacher>.jsonl           each row: the rewrite, or why there is none
  journals/<teacher>-<digest>.sqlite what the teacher was paid for; journal.sqlite: judge and examiner
  teachers.yaml  config.yaml         the settings

Run again: what a journal holds is not paid for again.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from components.data.validate.stage import known_snapshots
from components.evaluation.rewriter.measures import METRICS
from components.evaluation.rewriter.score_systems import ScoredRows
from pipelines.comparing import results
from pipelines.comparing.config import TeacherChoice, TeachersConfig, check_payable, journal_name
from pipelines.comparing.report import write_report
from pipelines.comparing.sample import Sample, draw_sample
from pipelines.comparing.score_teachers import (
    PLAIN,
    STEP,
    RowsWithNeeds,
    TeacherRewrite,
    collect_needs,
    collect_rewrites,
    score_rewrites,
    write_rewrites,
)
from pipelines.config import dump_config
from pipelines.execution import run_lock
from pipelines.preflight import check_input_files, check_served, check_sheet, knowledge_bases, with_run_files
from pipelines.rewriter import RunConfig
from pipelines.run import start_backends, start_gateway
from pipelines.rundir import RunDir, write_json
from pipelines.sheet import read_sheet
from qinglan.errors import DataError
from qinglan.evaluation.metric_table import MetricTable
from qinglan.files import sha256_file
from qinglan.lineage.record import code_version
from qinglan.llm.config import GatewayConfig
from qinglan.llm.journal_reader import read_attempts, read_report
from qinglan.rows import Question
from qinglan.services import run_service

LEAST = 1e-9
"""A budget that is spent still answers from its journal."""

Confirm = Callable[[Sample], None]
Json = dict[str, Any]


class ComparisonData(NamedTuple):
    """Everything that the models answered, before it is counted."""

    known: RowsWithNeeds
    rewrites: dict[str, list[TeacherRewrite]]
    """Rewrites of the rows that have a need, by teacher."""

    scored: ScoredRows


def compare(config: RunConfig, teachers: TeachersConfig, root: Path, rows: int, confirm: Confirm) -> Json:
    """Write everything that the module's docstring names; the answer is comparison.json."""
    run = RunDir(root)
    config = with_run_files(config, run, "")
    check_input_files(config)
    sheet = read_sheet(config)
    check_sheet(config, sheet, ())
    check_payable(config, teachers)
    sample = draw_sample(config, rows, config.evaluate.seed)
    confirm(sample)
    with run_lock(run):
        dump_config(config, run.config)
        dump_config(teachers, root / "teachers.yaml")
        compared = _collect(config, teachers, run, sample, sheet.tenants)
        comparison = build_comparison(config, teachers, run, sample, compared)
        write_json(root / "comparison.json", comparison)
        write_report(orjson.loads((root / "comparison.json").read_bytes()), root)
    return comparison


def _collect(
    config: RunConfig, teachers: TeachersConfig, run: RunDir, sample: Sample, tenants: set[str]
) -> ComparisonData:
    """Needs first, so that a RAG service that lacks a knowledge base is found out before teachers are paid."""
    with ExitStack() as services:
        backends = start_backends(config, run, services)
        with _shared_gateway(backends, teachers, config, run) as url:
            check_served(url, tenants, config.retrieval.kb_name)
            known = collect_needs(sample.rows, _snapshots(config), url)
        if not known.rows:
            raise DataError(
                f"{config.questions}: none of {len(sample.rows)} rows has a need, and the judge gave none "
                f"({_counted(known.without)}). Write one into {config.generate.columns.need}, or try another judge."
            )
        written = {teacher.name: _write(teacher, teachers, config, run, sample.rows) for teacher in teachers.teachers}
        ids = {row.id for row in known.rows}
        rewrites = {
            name: [rewrite for row, rewrite in zip(sample.rows, of_teacher, strict=True) if row.id in ids]
            for name, of_teacher in written.items()
        }
        with _shared_gateway(backends, teachers, config, run) as url:
            scored = score_rewrites(known.rows, rewrites, run.root / "predictions.jsonl", config.evaluate, url)
    return ComparisonData(known, rewrites, scored)


def _write(
    choice: TeacherChoice, teachers: TeachersConfig, config: RunConfig, run: RunDir, rows: list[Question]
) -> list[TeacherRewrite]:
    """One teacher's rewrites, through a gateway and a journal of its own."""
    with ExitStack() as services:
        model = choice.model
        if config.stand_ins.teacher:
            model = model.model_copy(update={"base_url": _stand_in(choice, config, run, services)})
        journal = journal_of(choice, config, run)
        gateway = config.gateway.model_copy(
            update={
                "teacher": model,
                "judge": model,
                "examiner": None,
                "budget": budget_left(config, run, journal),
            }
        )
        settings = run.root / "gateways" / f"{choice.name}.json"
        write_json(settings, gateway.model_dump(mode="json"))
        arguments = ["--config", str(settings), "--journal", str(journal), "--port", "0"]
        arguments += ["--retrieval-cache", str(run.root / "gateways" / f"{choice.name}.sqlite")]
        url = services.enter_context(
            run_service("serving.gateway", arguments, run.logs / f"gateway-{choice.name}.log")
        )
        written = collect_rewrites(choice.name, rows, config.generate.system_prompt, url)
    write_rewrites(run.root / "rewrites" / f"{choice.name}.jsonl", rows, written)
    return written


def _stand_in(choice: TeacherChoice, config: RunConfig, run: RunDir, services: ExitStack) -> str:
    """A stand-in for this teacher alone, under its model's own name."""
    it = choice.stand_in
    skill = it.model_dump(mode="json", exclude={"seconds", "error_rate"}) | {"tenant": config.tenant_id}
    arguments = ["--variant", f"{choice.model.model}={orjson.dumps(skill).decode()}", "--port", "0"]
    arguments += ["--latency", str(it.seconds), "--error-rate", str(it.error_rate), "--silence", "0"]
    for tenant, path in knowledge_bases(config).items():
        arguments += ["--kb", f"{tenant}={path}"]
    return services.enter_context(run_service("standins.teacher", arguments, run.logs / f"teacher-{choice.name}.log"))


@contextmanager
def _shared_gateway(
    backends: GatewayConfig, teachers: TeachersConfig, config: RunConfig, run: RunDir
) -> Iterator[str]:
    """Judge, examiner and RAG; no teacher is asked here, so none needs its key."""
    with ExitStack() as services:
        left = budget_left(config, run, run.journal)
        yield start_gateway(backends.model_copy(update={"teacher": backends.judge, "budget": left}), run, services)


def journal_of(choice: TeacherChoice, config: RunConfig, run: RunDir) -> Path:
    return run.root / "journals" / f"{journal_name(choice, config.stand_ins.teacher)}.sqlite"


def budget_left(config: RunConfig, run: RunDir, journal: Path) -> float:
    """The budget without what this comparison has spent in other journals, those of earlier settings among them."""
    journals = {run.journal, *(run.root / "journals").glob("*.sqlite")} - {journal}
    spent = sum(float(read_report(path)["cost"]) for path in journals if path.is_file())
    return max(config.gateway.budget - spent, LEAST)


def _snapshots(config: RunConfig) -> dict[str, str]:
    assert config.knowledge_base is not None
    known_snapshots(config.knowledge_base)
    return {tenant: sha256_file(path) for tenant, path in knowledge_bases(config).items()}


def build_comparison(
    config: RunConfig, teachers: TeachersConfig, run: RunDir, sample: Sample, compared: ComparisonData
) -> Json:
    known, rewrites, scored = compared
    names = [teacher.name for teacher in teachers.teachers]
    table = MetricTable.of(known.rows, scored.values, METRICS, config.evaluate.draws, config.evaluate.seed)
    ids = {row.id for row in known.rows}
    spent = {teacher.name: _spent(journal_of(teacher, config, run), ids) for teacher in teachers.teachers}
    metric = results.deciding_metric(table)
    margin = results.scaled(teachers.margin, metric)
    levels = results.teacher_results(table, rewrites, spent, config.evaluate)
    paired = results.paired_results(table, names, metric, margin)
    for teacher in teachers.teachers:
        levels[teacher.name]["model"] = teacher.model.model_dump(mode="json")
    return {
        "tenant": config.tenant_id, "names": names, "systems": levels, "paired": paired, "deciding": metric,
        "margin": margin, "unit": results.UNITS[metric], "why": results.why_it_decides(metric, table),
        "recommendation": results.recommendation(levels, paired, names, metric, margin)._asdict(),
        "currency": config.gateway.teacher.price.currency,
        "counts": {
            "rows": len(known.rows), "conversations": table.conversation_count,
            "training_rows": sample.training, "locked_rows": sample.locked, "without_need": dict(known.without),
            "examined": levels[PLAIN]["quality"]["n"],
        },
        "notes": _notes(config, teachers, compared),
        "settings": {
            "seed": config.evaluate.seed, "draws": config.evaluate.draws, "stand_ins": config.stand_ins.teacher,
        },
        "digests": _digests(config, run, names, scored.snapshots),
    }  # fmt: skip


def _spent(journal: Path, rows: set[str]) -> results.JournalUsage:
    report = read_report(journal)
    answered = report["answered"] or 1
    tokens = {name: report[f"{name}_tokens"] / answered for name in ("input", "output", "reasoning")}
    return results.JournalUsage(
        [attempt for attempt in read_attempts(journal, STEP, "teacher") if attempt.row in rows], tokens
    )


def _notes(config: RunConfig, teachers: TeachersConfig, compared: ComparisonData) -> list[str]:
    """Facts that a reader must know to read the numbers right."""
    models = config.gateway.models()
    lines = [
        "Rows are whole conversations of training, drawn by seed; dev and the locked test were not looked at.",
        "A row without a rewrite counts as the plain question, against the teacher that gave none.",
        f"Latency is from a live call's journal entry to its answer's, {config.gateway.limits.concurrency} at "
        "once, without waiting for a turn; the teachers were asked one after the other, so at different hours.",
        "Cost is the journal's: every attempt counts, and one without an outcome counts at its worst.",
    ]
    judges = {models["judge"].model, models["examiner"].model}
    if judging := [teacher.name for teacher in teachers.teachers if teacher.model.model in judges]:
        lines.append(
            f"{' and '.join(judging)} is also judge or examiner here: it judges itself, and models like their own."
        )
    if config.stand_ins.teacher:
        lines.append(
            "Stand-ins answered in the place of every model: the figures show the method, and no real model."
        )
    if compared.known.without:
        lines.append(f"Rows left out for all, as the judge gave no need: {_counted(compared.known.without)}.")
    if compared.scored.unexamined:
        lines.append(f"Rewrites without the examiner's score: {_counted(compared.scored.unexamined)}.")
    return lines


def _counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in reasons.items()) or "none"


def _digests(config: RunConfig, run: RunDir, names: list[str], snapshots: list[str]) -> Json:
    assert config.questions is not None
    return {
        "questions": sha256_file(config.questions), "knowledge_bases": snapshots,
        "predictions": sha256_file(run.root / "predictions.jsonl"),
        "rewrites": {name: sha256_file(run.root / "rewrites" / f"{name}.jsonl") for name in names},
        "code": code_version(),
    }  # fmt: skip
