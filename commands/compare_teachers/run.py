"""`qinglan compare-teachers`: let each candidate rewrite the same rows, and compare the retrievals.

DIR/
  comparison.json  comparison.html   the results and the report
  predictions.jsonl                  each row: every teacher's query, its hits, every metric
  rewrites/<teacher>.jsonl           each row: the rewrite, or why there is none
  journals/<teacher>-<digest>.sqlite the teacher's paid answers; journal.sqlite: judge and examiner
  teachers.yaml  config.yaml         the settings

Run again, it does not pay again for answers in the journals.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from commands.compare_teachers import results
from commands.compare_teachers.config import TeacherChoice, TeachersConfig, check_payable, journal_name
from commands.compare_teachers.report import write_report
from commands.compare_teachers.sample import Sample, draw_sample
from commands.compare_teachers.score_teachers import (
    PLAIN,
    STEP,
    RowsWithNeeds,
    TeacherRewrite,
    collect_needs,
    collect_rewrites,
    score_rewrites,
    write_rewrites,
)
from commands.run.run import knowledge_base_options, start_backends, start_gateway
from components.data.validate.stage import known_snapshots
from components.evaluation.rewriter.measures import METRICS
from components.evaluation.rewriter.score_systems import ScoredRows
from pipelines.checks.preflight import check_input_files, check_served, check_sheet, knowledge_bases, with_run_files
from pipelines.execute.execution import run_lock, with_absolute_inputs
from pipelines.execute.rundir import RunDir, write_json
from pipelines.lines.config import dump_config
from pipelines.lines.rewriter import REWRITER, RunConfig
from pipelines.lines.sheet import read_sheet
from qinglan.errors import DataError
from qinglan.evaluation.metric_table import MetricTable
from qinglan.files.files import sha256_file
from qinglan.lineage.steps.record import code_version
from qinglan.llm.config import GatewayConfig
from qinglan.llm.paid.journal_reader import read_attempts, read_report
from qinglan.processes.services import run_service
from qinglan.rows.rows import Question

LEAST = 1e-9
"""Budget of a gateway whose money is spent: it must be positive, and lets it answer from its journal alone."""

Confirm = Callable[[Sample], None]
Json = dict[str, Any]


class ComparisonData(NamedTuple):
    """Answers of all models, before the statistics."""

    with_needs: RowsWithNeeds
    rewrites: dict[str, list[TeacherRewrite]]
    """Rewrites of the rows that have a need, by teacher."""

    scored: ScoredRows


def compare(config: RunConfig, teachers: TeachersConfig, root: Path, rows: int, confirm: Confirm) -> Json:
    """Compare the teachers and write all files of the folder; returns the content of comparison.json."""
    run = RunDir(root)
    config = with_run_files(config, run, "")
    check_input_files(config)
    sheet = read_sheet(config)
    check_sheet(config, sheet, ())
    check_payable(config, teachers)
    sample = draw_sample(config, rows, config.evaluate.seed)
    confirm(sample)
    with run_lock(run):
        dump_config(with_absolute_inputs(REWRITER, config), run.config)
        dump_config(teachers, root / "teachers.yaml")
        compared = _collect(config, teachers, run, sample, sheet.tenants)
        comparison = build_comparison(config, teachers, run, sample, compared)
        write_json(root / "comparison.json", comparison)
        write_report(orjson.loads((root / "comparison.json").read_bytes()), root)
    return comparison


def _collect(
    config: RunConfig, teachers: TeachersConfig, run: RunDir, sample: Sample, tenants: set[str]
) -> ComparisonData:
    """Collect needs, then rewrites, then scores; the knowledge bases are checked before any teacher is paid."""
    with ExitStack() as services:
        backends = start_backends(config, run, services)
        with _shared_gateway(backends, teachers, config, run) as url:
            check_served(url, tenants, config.retrieval.kb_name)
            with_needs = collect_needs(sample.rows, _snapshots(config), config.validate_.need_prompt, url)
        if not with_needs.rows:
            raise DataError(
                f"{config.questions}: none of {len(sample.rows)} rows has a need, and the judge gave none "
                f"({_counted(with_needs.without)}). Write one into {config.generate.columns.need}, or try another "
                "judge."
            )
        written = {teacher.name: _write(teacher, teachers, config, run, sample.rows) for teacher in teachers.teachers}
        ids = {row.id for row in with_needs.rows}
        rewrites = {
            name: [rewrite for row, rewrite in zip(sample.rows, of_teacher, strict=True) if row.id in ids]
            for name, of_teacher in written.items()
        }
        with _shared_gateway(backends, teachers, config, run) as url:
            scored = score_rewrites(with_needs.rows, rewrites, run.root / "predictions.jsonl", config.evaluate, url)
    return ComparisonData(with_needs, rewrites, scored)


def _write(
    choice: TeacherChoice, teachers: TeachersConfig, config: RunConfig, run: RunDir, rows: list[Question]
) -> list[TeacherRewrite]:
    """Collect one teacher's rewrites through its own gateway and journal."""
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
    """Start a stand-in for this teacher alone, under its model's name; returns its URL."""
    it = choice.stand_in
    skill = it.model_dump(mode="json", exclude={"seconds", "error_rate"}) | {"tenant": config.tenant_id}
    arguments = ["--variant", f"{choice.model.model}={orjson.dumps(skill).decode()}", "--port", "0"]
    arguments += ["--latency", str(it.seconds), "--error-rate", str(it.error_rate), "--silence", "0"]
    arguments += knowledge_base_options(config)
    return services.enter_context(run_service("standins.teacher", arguments, run.logs / f"teacher-{choice.name}.log"))


@contextmanager
def _shared_gateway(
    backends: GatewayConfig, teachers: TeachersConfig, config: RunConfig, run: RunDir
) -> Iterator[str]:
    """Start the gateway to judge, examiner and RAG; it calls no teacher, so it needs no teacher's key."""
    with ExitStack() as services:
        left = budget_left(config, run, run.journal)
        yield start_gateway(backends.model_copy(update={"teacher": backends.judge, "budget": left}), run, services)


def journal_of(choice: TeacherChoice, config: RunConfig, run: RunDir) -> Path:
    return run.root / "journals" / f"{journal_name(choice, config.stand_ins.teacher)}.sqlite"


def budget_left(config: RunConfig, run: RunDir, journal: Path) -> float:
    """Subtract what this comparison has spent in its other journals, also under earlier settings, from the budget."""
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
    with_needs, rewrites, scored = compared
    names = [teacher.name for teacher in teachers.teachers]
    table = MetricTable.of(with_needs.rows, scored.values, METRICS, config.evaluate.draws, config.evaluate.seed)
    ids = {row.id for row in with_needs.rows}
    spent = {teacher.name: _spent(journal_of(teacher, config, run), ids) for teacher in teachers.teachers}
    metric = results.deciding_metric(table)
    margin = results.scaled(teachers.margin, metric)
    levels = results.teacher_results(table, rewrites, spent, config.evaluate)
    paired = results.paired_results(table, names, metric, margin)
    plain_gaps = results.against_plain(table, names, metric)
    for teacher in teachers.teachers:
        levels[teacher.name]["against_plain"] = plain_gaps[teacher.name]
        levels[teacher.name]["model"] = teacher.model.model_dump(mode="json")
    return {
        "tenant": config.tenant_id, "names": names, "systems": levels, "paired": paired, "deciding": metric,
        "margin": margin, "unit": results.UNITS[metric], "why": results.why_it_decides(metric, table),
        "recommendation": results.recommendation(levels, paired, names, metric, margin)._asdict(),
        "currency": config.gateway.teacher.price.currency,
        "counts": {
            "rows": len(with_needs.rows), "conversations": table.conversation_count,
            "training_rows": sample.training, "locked_rows": sample.locked, "without_need": dict(with_needs.without),
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
    """List the facts that a reader must know to interpret the numbers."""
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
    if compared.with_needs.without:
        lines.append(f"Rows left out for all, as the judge gave no need: {_counted(compared.with_needs.without)}.")
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
